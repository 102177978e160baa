// Parameters in flat storage: an optimizer moves the parameters it is given into a few contiguous
// slabs, so that one dispatch updates a whole group.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rewind/core/tensor/tensor.h"
#include "rewind/core/tensor/weight_copies.h"

namespace rw {

// How the state of parameters is kept in host memory.
struct Offload {
  // Of the state that is on the device for an update, three times this much: one part is updated
  // while the next comes and the one before goes back. Parts of a parameter have 2^18 elements or
  // more. What cannot be cut (Adafactor, Muon, LAMB, 8-bit states) and is larger is updated in the
  // host's memory, over the bus.
  uint64_t part_bytes = uint64_t{32} << 20;
};

// Whose state this process keeps, of the parameters that several update together (dist/): each
// rank that of about as many elements, whole parameters in their order.
struct Shard {
  int rank = 0, ranks = 1;  // in [0, ranks)
  // Where the parameters are kept so, too: most bytes of those that are gathered together, unless
  // one is larger. 0: every rank has them all.
  uint64_t gathered_bytes = 0;
  bool operator==(const Shard&) const = default;
};

// Parameters that share options. Frozen ones (requires_grad() false) are left out.
struct ParameterGroup {
  std::vector<Tensor> parameters = {};               // float leaves
  float lr_scale = 1;                                // on the optimizer's learning rate
  std::optional<float> weight_decay = std::nullopt;  // instead of the optimizer's
  std::optional<Offload> offload = std::nullopt;     // where their state lies; none: on the device
  std::optional<Shard> shard = std::nullopt;         // whose state is kept here; none: of all
};
// All of them, with the optimizer's options.
inline std::vector<ParameterGroup> one_group(std::vector<Tensor> parameters) {
  return {{.parameters = std::move(parameters)}};
}

// The same groups, with what an optimizer keeps of them (moments, and the f32 masters of 16-bit
// parameters) in host memory that the device's kernels reach. Updates give the same bits. Where
// device memory is host memory nothing is gained. ValueError for part_bytes of 0.
std::vector<ParameterGroup> offload_states(std::vector<ParameterGroup> groups,
                                           const Offload& how = {});
std::vector<ParameterGroup> offload_states(std::vector<Tensor> parameters, const Offload& how = {});

// The same groups, of whose parameters each rank keeps the state of a part, and updates it; the
// others get the values from it: DataParallel (ZeRO 1, Rajbhandari et al. 2020). Updates give the
// same bits. All groups of an optimizer need the same shard, and none of them may be offloaded:
// ValueError.
std::vector<ParameterGroup> shard_states(std::vector<ParameterGroup> groups, const Shard& shard);
std::vector<ParameterGroup> shard_states(std::vector<Tensor> parameters, const Shard& shard);

// The same, and each rank keeps the values of its parameters only: the others' are in its memory
// while kernels read them, as DataParallel says (ZeRO 3, the same source). Masters of 16-bit
// parameters are their owner's alone. There are no 16-bit copies of f32 ones (set_weight_copies).
std::vector<ParameterGroup> shard_parameters(std::vector<ParameterGroup> groups, Shard shard);
std::vector<ParameterGroup> shard_parameters(std::vector<Tensor> parameters, const Shard& shard);

// Two groups: what has two axes or more decays by `weight_decay`; biases and the weights of
// normalisation, which have one, do not.
std::vector<ParameterGroup> decay_groups(const std::vector<Tensor>& parameters, float weight_decay);

// The parameters whose name matches a pattern, with options of their own.
struct NamedGroup {
  std::string pattern;  // as file names: `*` and `?` ("encoder.*.bias")
  float lr_scale = 1;   // on the optimizer's learning rate
  std::optional<float> weight_decay = std::nullopt;  // instead of the optimizer's
  bool is_frozen = false;  // left out, and they collect no gradients any more
};
// A group for each of `named`, with what its pattern matches and no earlier one did, and one for
// the rest. The names are those that Module::parameters() gave. ValueError for a pattern that
// matches nothing.
std::vector<ParameterGroup> groups_by_name(const std::vector<Tensor>& parameters,
                                           const std::vector<NamedGroup>& named);

// The shape of state number `state` of a parameter of the group number `group`; none: it has no
// such state.
using StateShape =
    std::function<std::optional<Shape>(size_t state, const Tensor& parameter, size_t group)>;

// The tensors that an update of a run changes.
struct RunValues {
  Tensor parameters;           // f32 [elements], of 16-bit parameters the masters
  std::vector<Tensor> states;  // [elements of this state]; undefined where nobody has it
};

// Every parameter becomes a view of a slab; handles stay valid. Parameters start at multiples of 8
// elements; the gaps hold zeros and stay zero. 16-bit parameters have f32 masters beside them,
// which updates change; publish() rounds them into the parameters. Gradients are not part of it:
// each takes its memory when backward first makes it and gives it back in drop_gradients().
class FlatParameters {
 public:
  // Up to 128 MiB, or one parameter that is larger: bounds what moving the parameters costs on top
  // of them, and fits the blocks of every device.
  struct Slab {
    Tensor parameters;  // f32 [elements]; of 16-bit parameters the masters, undefined where only
                        // their owner has them
    Tensor low;         // 16-bit parameters themselves; undefined where they are f32
    uint32_t low_version = 0;    // of their storage when the masters were the same
    std::vector<Tensor> states;  // [elements of this state]; undefined where nobody has it
    bool is_offloaded = false;   // states and masters lie in host memory
    int owner = 0;               // the rank that keeps it, where parameters are kept in parts

    const Tensor& values() const { return low ? low : parameters; }  // of the parameters
  };
  // Where a state of a parameter lies in its tensor of the slab.
  struct State {
    Shape shape;         // as StateShape gave it
    int64_t offset = 0;  // in elements
  };
  // Where a parameter lies. `offset` is in elements from the start of the slab.
  struct Slot {
    Tensor parameter;
    size_t slab = 0;
    int64_t offset = 0;
    std::string name;  // the parameter's, or "group.index" where it has none
    std::vector<std::optional<State>> states = {};  // as StateShape gave them
    int owner = 0;                                  // the rank that updates it, of a Shard
  };
  // Elements of a flat tensor.
  struct Range {
    int64_t offset = 0, size = 0;  // the first one, and how many
  };
  // Consecutive parameters of one `group` in one `slab` that have the same states, or a part of one
  // parameter: what one dispatch updates.
  struct Run {
    size_t group = 0, slab = 0;
    Range elements;                    // of the slab's parameters
    std::vector<Range> states;         // of the slab's states
    size_t first_slot = 0, slots = 0;  // the parameters
    bool is_elsewhere = false;         // another rank updates it
    bool is_staged = false;            // offloaded, and on the device for the update (StateStaging)
  };
  // Parts of a parameter begin at multiples of so many elements, as rows of the gradients' table
  // do: sums over them, and so all bits, are those of the whole.
  static constexpr int64_t part_unit = int64_t{1} << 18;

  // Throws AutogradError for parameters that appear twice, share storage or belong to another
  // optimizer. There is a state of each of the dtypes, of the shape that shape_of gives and
  // `initial` at first. `in_parts`: a run may be a part of a parameter whose states are offloaded.
  FlatParameters(std::vector<ParameterGroup> groups, std::vector<DType> states,
                 const StateShape& shape_of, float initial = 0, bool in_parts = false);
  ~FlatParameters();  // the parameters keep their values
  FlatParameters(FlatParameters&&) = default;
  FlatParameters& operator=(FlatParameters&&) = delete;

  const std::vector<ParameterGroup>& groups() const { return groups_; }  // without frozen ones
  const std::vector<Slab>& slabs() const { return slabs_; }              // the storage
  const std::vector<Slot>& slots() const { return slots_; }              // one per parameter
  const std::vector<Run>& runs() const { return runs_; }                 // all slots, in order
  const std::optional<Shard>& shard() const { return groups_.front().shard; }  // of all groups
  Device& device() const { return slots_.front().parameter.device(); }         // of all of them

  // Moves each parameter into a slab, and so into a run, of its own: one may then be updated while
  // backward still reads the others. For states as in the constructor, which begin anew, and before
  // set_weight_copies(). For a moment the parameters of a slab are in memory twice.
  void separate(const StateShape& shape_of, float initial = 0);

  // Before an update: what was written to 16-bit parameters (a loaded model) goes to their masters.
  void follow_parameters();
  // After one: 16-bit parameters and the 16-bit copies of f32 ones are made, a dispatch per slab.
  // `is_offloaded_done`: those with offloaded masters were made run by run.
  void publish(bool is_offloaded_done = false);
  void set_weight_copies(WeightCopyUse use);  // what there is of copies goes
  WeightCopyUse weight_copies() const { return weight_copies_; }

  void drop_gradients();  // every grad() is undefined again
  // Zeros for the gradients to come, in slabs apart from what steps need: for gradients that
  // outlive a step. drop_gradients() gives them back. Backward adds to f32 only: places of another
  // dtype are for the caller to take away.
  void place_gradients(DType dtype = DType::f32);
  // The part of `whole` (a tensor of a slab) that belongs to a slot, in the parameter's shape.
  static Tensor view(const Tensor& whole, const Slot& slot);
  static Tensor view(const Tensor& whole, const Range& range);
  RunValues values(size_t run) const;  // views of its slab
  // The f32 values that updates change, in their shape; undefined where another rank has them.
  Tensor master(const Slot& slot) const;
  // A parameter's state, in its shape; undefined where it has none.
  Tensor state(const Slot& slot, size_t state) const;

 private:
  FlatParameters() = default;
  struct SlabSizes {
    DType dtype = DType::f32;  // of the parameters
    int64_t parameters = 0;
    std::vector<int64_t> states;
    bool is_offloaded = false;
    int owner = 0;
  };
  bool keeps_parts() const { return shard() && shard()->gathered_bytes > 0; }
  // Fills slots_ and runs_.
  std::vector<SlabSizes> plan(const StateShape& shape_of, bool in_parts, int64_t slab_elements);
  // Appends the parameter to the last run or a new one, in parts where it must be.
  void add_to_runs(const Slot& slot, size_t group, bool in_parts);
  bool joins(const Run& run, const Run& next) const;
  void move_into(size_t slab, const SlabSizes& sizes);
  void add_states(size_t slab, const SlabSizes& sizes, float initial);

  std::vector<ParameterGroup> groups_;
  std::vector<DType> dtypes_;  // of the states
  std::vector<Slab> slabs_;
  std::vector<Slot> slots_;
  std::vector<Run> runs_;
  WeightCopyUse weight_copies_ = WeightCopyUse::never;
};

}  // namespace rw
