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

// Parameters that share options. Frozen ones (requires_grad() false) are left out.
struct ParameterGroup {
  std::vector<Tensor> parameters = {};               // float leaves
  float lr_scale = 1;                                // on the optimizer's learning rate
  std::optional<float> weight_decay = std::nullopt;  // instead of the optimizer's
};
// All of them, with the optimizer's options.
inline std::vector<ParameterGroup> one_group(std::vector<Tensor> parameters) {
  return {{.parameters = std::move(parameters)}};
}

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

// Every parameter becomes a view of a slab; handles stay valid. Parameters start at multiples of 8
// elements; the gaps hold zeros and stay zero. 16-bit parameters have f32 masters beside them,
// which updates change; publish() rounds them into the parameters. Gradients are not part of it:
// each takes its memory when backward first makes it and gives it back in drop_gradients().
class FlatParameters {
 public:
  // Up to 128 MiB, or one parameter that is larger: bounds what moving the parameters costs on top
  // of them, and fits the blocks of every device.
  struct Slab {
    Tensor parameters;           // f32 [elements]; of 16-bit parameters the masters
    Tensor low;                  // 16-bit parameters themselves; undefined where they are f32
    uint32_t low_version = 0;    // of their storage when the masters were the same
    std::vector<Tensor> states;  // f32 [elements of this state]; undefined where nobody has it
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
  };
  // Elements of a flat tensor.
  struct Range {
    int64_t offset = 0, size = 0;  // the first one, and how many
  };
  // Consecutive parameters of one `group` in one `slab`: what one dispatch updates.
  struct Run {
    size_t group = 0, slab = 0;
    Range elements;                    // of the slab's parameters
    std::vector<Range> states;         // of the slab's states
    size_t first_slot = 0, slots = 0;  // the parameters
  };

  // Throws AutogradError for parameters that appear twice, share storage or belong to another
  // optimizer. There are `states` states, each of the shape that shape_of gives and `initial` at
  // first.
  FlatParameters(std::vector<ParameterGroup> groups, size_t states, const StateShape& shape_of,
                 float initial = 0);
  ~FlatParameters();  // the parameters keep their values
  FlatParameters(FlatParameters&&) = default;
  FlatParameters& operator=(FlatParameters&&) = delete;

  const std::vector<ParameterGroup>& groups() const { return groups_; }  // without frozen ones
  const std::vector<Slab>& slabs() const { return slabs_; }              // the storage
  const std::vector<Slot>& slots() const { return slots_; }              // one per parameter
  const std::vector<Run>& runs() const { return runs_; }                 // all slots, in order
  Device& device() const { return slots_.front().parameter.device(); }   // of all of them

  // Moves each parameter into a slab, and so into a run, of its own: one may then be updated while
  // backward still reads the others. For states as in the constructor, which begin anew, and before
  // set_weight_copies(). For a moment the parameters are in memory twice.
  void separate(size_t states, const StateShape& shape_of, float initial = 0);

  // Before an update: what was written to 16-bit parameters (a loaded model) goes to their masters.
  void follow_parameters();
  // After one: 16-bit parameters and the 16-bit copies of f32 ones are made, a dispatch per slab.
  void publish();
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
  Tensor master(const Slot& slot) const;  // the f32 values that updates change, in their shape
  // A parameter's state, in its shape; undefined where it has none.
  Tensor state(const Slot& slot, size_t state) const;

 private:
  FlatParameters() = default;
  struct SlabSizes {
    DType dtype = DType::f32;  // of the parameters
    int64_t parameters = 0;
    std::vector<int64_t> states;
  };
  // Fills slots_ and runs_.
  std::vector<SlabSizes> plan(size_t states, const StateShape& shape_of, int64_t slab_elements);
  void move_into(size_t slab, const SlabSizes& sizes, float initial);

  std::vector<ParameterGroup> groups_;
  std::vector<Slab> slabs_;
  std::vector<Slot> slots_;
  std::vector<Run> runs_;
  WeightCopyUse weight_copies_ = WeightCopyUse::never;
};

}  // namespace rw
