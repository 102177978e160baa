// Parameters in flat storage: an optimizer moves the parameters it is given into a few contiguous
// slabs, so that one dispatch updates a whole group.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../../core/tensor/weight_copies.h"
#include "ownership.h"
#include "parameter_groups.h"

namespace rw {

// The shape of state number `state` of a parameter of the group number `group`; none: it has no
// such state.
using StateShape =
    std::function<std::optional<Shape>(size_t state, const Tensor& parameter, size_t group)>;

// How many elements of a parameter of the group number `group` are updated together, from the first
// one on; 0: all of them. Of each of its states there are as many elements, or one for so many.
using UpdateUnit = std::function<int64_t(size_t group)>;

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
    // Of one parameter that is divided, where parameters are kept in parts: what it is a view of,
    // which is there for a time. The others are elements `own` of it, which this rank keeps;
    // undefined where it has none.
    Tensor whole;
    ElementRange own;            // all, where nothing is divided
    uint32_t whole_version = 0;  // of its storage when the own elements were the same
    uint32_t low_version = 0;    // of their storage when the masters were the same
    std::vector<Tensor> states;  // [elements of this state]; undefined where nobody has it
    bool is_offloaded = false;   // states and masters lie in host memory
    int owner = 0;  // the rank that keeps it, where parameters are kept in parts and it is one's

    const Tensor& values() const { return low ? low : parameters; }  // of the own elements
    const Tensor& held() const { return whole ? whole : values(); }  // what parameters are views of
  };
  // Where a state of a parameter lies in its tensor of the slab.
  struct State {
    Shape shape;         // as StateShape gave it; of a divided parameter [elements of the part]
    int64_t offset = 0;  // in elements
    int64_t first = 0;   // of the elements that it has in one process, the first that is here
  };
  // Where a parameter lies. `offset` is in elements from the start of the slab.
  struct Slot {
    Tensor parameter;
    size_t slab = 0;
    int64_t offset = 0;
    std::string name;  // the parameter's, or "group.index" where it has none
    std::vector<std::optional<State>> states = {};  // those that are here
    // The elements that are updated here, and whose gradient they have: the parameter, or of one
    // that is divided a view of them, [elements]. Undefined: all of it is updated elsewhere.
    ElementRange own = {};
    Tensor part = {};

    // Whether others update elements of it, too.
    bool is_divided() const { return part && own.size < parameter.numel(); }
  };
  // Consecutive parameters of one `group` in one `slab` that have the same states, or a part of one
  // parameter: what one dispatch updates.
  struct Run {
    size_t group = 0, slab = 0;
    ElementRange elements;             // of all that is in the slab
    std::vector<ElementRange> states;  // of the slab's states
    size_t first_slot = 0, slots = 0;  // the parameters
    bool is_elsewhere = false;         // another rank updates it
    bool is_staged = false;            // offloaded, and on the device for the update (StateStaging)
  };
  // Parts of a parameter begin at multiples of so many elements, as rows of the gradients' table
  // do: sums over them, and so all bits, are those of the whole.
  static constexpr int64_t part_unit = int64_t{1} << 18;

  // Throws AutogradError for parameters that appear twice, share storage or belong to another
  // optimizer. There is a state of each of the dtypes, of the shape that shape_of gives and
  // `initial` at first. A run may be a part of a parameter whose elements are updated by
  // themselves, where its states are offloaded or in parts.
  FlatParameters(std::vector<ParameterGroup> groups, std::vector<DType> states,
                 const StateShape& shape_of, float initial, const UpdateUnit& unit_of);
  ~FlatParameters();  // the parameters keep their values
  FlatParameters(FlatParameters&&) = delete;

  const std::vector<ParameterGroup>& groups() const { return groups_; }  // without frozen ones
  const std::vector<Slab>& slabs() const { return slabs_; }              // the storage
  const std::vector<Slot>& slots() const { return slots_; }              // one per parameter
  const std::vector<Run>& runs() const { return runs_; }                 // all slots, in order
  const std::optional<Shard>& shard() const { return groups_.front().shard; }  // of all groups
  const Ownership& ownership() const { return *ownership_; }  // of the slots; one rank has all
  Device& device() const { return slots_.front().parameter.device(); }  // of all of them

  // For what reads parameters behind updates, as averages do: RankError where ranks keep them in
  // parts.
  void check_whole(const char* op) const;

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

  void drop_gradients() const;  // every grad() is undefined again
  // Zeros for the gradients to come, in slabs apart from what steps need: for gradients that
  // outlive a step. drop_gradients() gives them back. Backward adds to f32 only: places of another
  // dtype are for the caller to take away.
  void place_gradients(DType dtype = DType::f32) const;
  // The part of `whole` (a tensor of a slab) that belongs to a slot, in the parameter's shape.
  static Tensor view(const Tensor& whole, const Slot& slot);
  static Tensor view(const Tensor& whole, const ElementRange& range);
  RunValues values(size_t run) const;  // views of its slab
  // The f32 values that updates change, in their shape, or where a divided parameter's are in parts
  // [own elements]; undefined where another rank has them.
  Tensor master(const Slot& slot) const;
  Tensor own_master(const Slot& slot) const;  // of what is updated here
  // A parameter's state, in its shape; undefined where it has none here.
  Tensor state(const Slot& slot, size_t state) const;

 private:
  FlatParameters() = default;
  struct SlabSizes {
    DType dtype = DType::f32;  // of the parameters
    int64_t parameters = 0;
    std::vector<int64_t> states;
    bool is_offloaded = false;
    int owner = 0;
    // Of one parameter of which several ranks keep a part: the own elements.
    std::optional<ElementRange> divided = {};
  };
  bool keeps_parts() const { return shard() && shard()->gathered_bytes > 0; }
  int rank() const { return shard() ? shard()->rank : 0; }
  std::vector<size_t> collect(const UpdateUnit& unit_of);
  // Fills slots_ and runs_.
  std::vector<SlabSizes> plan(const StateShape& shape_of, const UpdateUnit& unit_of,
                              int64_t slab_elements);
  SlabSizes& slab_for(size_t slot, bool is_offloaded, int64_t slab_elements,
                      std::vector<SlabSizes>& sizes) const;
  static State own_part(const Shape& shape, const Slot& slot, int64_t unit);
  // Appends the parameter to the last run or a new one, in parts where it must be.
  void add_to_runs(size_t slot, size_t group, int64_t unit);
  void add_divided(const Run& whole);
  bool joins(const Run& run, const Run& next) const;
  void move_into(size_t slab, const SlabSizes& sizes);
  void add_states(size_t slab, const SlabSizes& sizes, float initial);

  std::vector<ParameterGroup> groups_;
  std::vector<DType> dtypes_;  // of the states
  std::vector<Slab> slabs_;
  std::vector<Slot> slots_;
  std::optional<Ownership> ownership_;
  std::vector<Run> runs_;
  WeightCopyUse weight_copies_ = WeightCopyUse::never;
};

}  // namespace rw
