// Parameters in flat storage: an optimizer moves its parameters into a few contiguous slabs, so
// that one dispatch updates a whole group.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "../../core/memory/local_sources.h"
#include "../../core/tensor/weight_copies.h"
#include "placement.h"

namespace rw {

// The tensors that an update of a run changes.
struct RunValues {
  Tensor parameters;           // f32 [elements], of 16-bit parameters the masters
  std::vector<Tensor> states;  // [elements of this state]; undefined where nobody has it
};

// Every parameter becomes a view of a slab; handles stay valid. Parameters start at multiples of 8
// elements; the gaps hold zeros and stay zero. 16-bit parameters have f32 masters beside them,
// which updates change; publish() rounds them into the parameters. Gradients are not included: each
// takes its memory when backward first makes it and gives it back in drop_gradients().
class FlatParameters {
 public:
  using Slot = Placement::Slot;  // a parameter
  using Run = Placement::Run;    // the elements that one dispatch updates
  // The memory of a planned slab.
  struct Slab : Placement::Slab {
    Tensor parameters;  // f32 [elements]; of 16-bit parameters the masters, undefined where only
                        // their owner has them
    Tensor low;         // 16-bit parameters themselves; undefined where they are f32
    // The whole of a divided parameter, if parameters are kept in parts: it exists for a time, and
    // the parameter is a view of it. The other tensors are elements `own` of it, which this rank
    // keeps; undefined if it has none.
    Tensor whole;
    uint32_t whole_version = 0;  // of its storage when the own elements were the same
    // The versions of the storages of 16-bit parameters and of masters when both had the same
    // values.
    uint32_t low_version = 0, master_version = 0;
    std::vector<Tensor> states = {};  // [elements of this state]; undefined where nobody has it

    const Tensor& values() const { return low ? low : parameters; }  // of the own elements
    // The storage of which parameters are views.
    const Tensor& held() const { return whole ? whole : values(); }
  };

  // Throws like Placement::of(). The rule must outlive it.
  FlatParameters(std::vector<ParameterGroup> groups, const StateRule& rule);
  ~FlatParameters();  // the parameters keep their values
  FlatParameters(FlatParameters&&) = delete;

  const std::vector<ParameterGroup>& groups() const { return groups_; }  // without frozen ones
  const std::vector<Slab>& slabs() const { return slabs_; }              // the storage
  const std::vector<Slot>& slots() const { return placement_.slots; }    // one per parameter
  const std::vector<Run>& runs() const { return placement_.runs; }       // all slots, in order
  const std::optional<Shard>& shard() const { return groups_.front().shard; }  // of all groups
  const Ownership& ownership() const { return *placement_.ownership; }         // one rank has all
  Device& device() const { return slots().front().parameter.device(); }        // of all of them

  // For code that reads parameters outside updates, as averages do: RankError if ranks keep them in
  // parts.
  void check_whole(const char* op) const;

  // Moves each parameter into a slab, and so into a run, of its own: one parameter may then be
  // updated while backward still reads others. States start anew. Call it before
  // set_weight_copies(). For a moment the parameters of a slab are in memory twice.
  void separate();

  // Called before an update: copies values that were written to 16-bit parameters (a loaded model)
  // to their masters.
  void follow_parameters();
  // Called after an update: makes 16-bit parameters from masters that have changed, and the 16-bit
  // copies of f32 parameters, with one dispatch per slab; or those of one run, from masters that
  // may be elsewhere during the update.
  void publish();
  void publish(size_t run, const Tensor& masters);
  // Called when a backward pass or an update is done: what is offloaded leaves the device.
  void end_window() const;
  void set_weight_copies(WeightCopyUse use);  // existing copies go
  WeightCopyUse weight_copies() const { return weight_copies_; }

  void drop_gradients() const;  // every grad() is undefined again
  // Allocates zeros for the gradients to come, in slabs apart from what steps need: for gradients
  // that outlive a step. drop_gradients() gives them back. Backward adds only to f32: the caller
  // must take places of another dtype away.
  void place_gradients(DType dtype = DType::f32) const;
  // The same, but where parameters are offloaded, these gradients lie in host memory, too.
  void stream_gradients() const;
  // Whether they do, and so are not on the device together.
  bool has_streamed_gradients() const { return gradients_.second != nullptr; }
  // The part of `whole` (a tensor of a slab) that belongs to a slot, in the parameter's shape.
  static Tensor view(const Tensor& whole, const Slot& slot);
  static Tensor view(const Tensor& whole, const ElementRange& range);
  RunValues values(size_t run) const;  // views of its slab
  // Where kernels of updates find what is beside values and gradients: in host memory, if the host
  // updates some runs.
  MemoryPlace update_place() const;
  // Sends what is offloaded of a run away from the device, gradients too, for an update on the
  // host. Returns whether its gradients are all on the host then.
  bool send_away(size_t run) const;
  // The f32 values that updates change, in their shape, or as [own elements] if a divided parameter
  // is in parts; undefined if another rank has them.
  Tensor master(const Slot& slot) const;
  Tensor own_master(const Slot& slot) const;  // of what is updated here
  // A parameter's state, in its shape; undefined if it has none here.
  Tensor state(const Slot& slot, size_t state) const;

 private:
  using HostStream = std::pair<std::unique_ptr<HostSource>, std::unique_ptr<Stream>>;
  explicit FlatParameters(const StateRule& rule) : rule_(rule) {}
  void move_into(size_t slab);
  void add_states(size_t slab);
  Tensor place_gradients_of(size_t slab, DType dtype) const;
  bool leaves(const Tensor& tensor) const;  // whether it is streamed, being offloaded
  HostStream streamed(const std::vector<Tensor>& tensors) const;

  const StateRule& rule_;
  std::vector<ParameterGroup> groups_;
  Placement placement_;
  std::vector<Slab> slabs_;
  WeightCopyUse weight_copies_ = WeightCopyUse::never;
  // These bring offloaded parameters and gradients; null: all of them are on the device. Gradients
  // come and go without a change of the parameters.
  HostStream values_;
  mutable HostStream gradients_;
};

}  // namespace rw
