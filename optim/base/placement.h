// The places of parameters and their states, and the ranks that update them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../../core/base/context.h"
#include "ownership.h"
#include "parameter_groups.h"

namespace rw {

// The states that an optimizer's rule keeps for parameters, and how much of one it updates at once.
class StateRule {
 public:
  virtual ~StateRule() = default;
  // One name for each state tensor that a parameter needs, as PyTorch calls it.
  virtual std::vector<std::string> state_names() const = 0;
  // The shape of a state, for a parameter of group number `group`; empty if it has no such state. A
  // state that kernels find through the table of chunks has the parameter's shape, or no parameter
  // of the group has it.
  virtual std::optional<Shape> state_shape(size_t /*state*/, const Tensor& parameter,
                                           size_t /*group*/) const {
    return parameter.shape();
  }
  // The dtype that they are stored in.
  virtual DType state_dtype(size_t /*state*/) const { return DType::f32; }
  virtual float initial_state() const { return 0; }  // the initial value of all of them
  // The number of elements of a parameter that are updated together, from the first one on; 0 means
  // all of them. Each of its states has as many elements, or one for this many; with 1, each
  // element by itself, all states have the parameter's shape. Such runs may be parts of a
  // parameter; if ranks share out parameters, so may runs of more elements.
  virtual int64_t unit(size_t /*group*/) const { return 0; }
};

// A plan of the memory of parameters, which takes no memory. It alone knows of Shard and Offload:
// it has what this rank updates, everything if there are no others, and says whether states lie in
// the device's memory or in the host's.
struct Placement {
  // Up to 128 MiB, or one parameter that is larger: this bounds the memory that moving the
  // parameters costs, and fits the blocks of every device.
  struct Slab {
    DType dtype = DType::f32;                  // of the parameters
    MemoryPlace where = MemoryPlace::device;   // of states and masters
    int64_t elements = 0;                      // of all its parameters
    std::vector<int64_t> state_elements = {};  // of each state
    int owner = 0;  // the rank that keeps it, where parameters are kept in parts and it is one's
    bool is_kept = true;      // this rank keeps elements of it
    bool is_divided = false;  // one parameter, of which several ranks keep a part
    ElementRange own = {};    // the elements kept here; all, if it is not divided
  };
  // The place of a parameter's state in its tensor of the slab.
  struct State {
    Shape shape;         // as state_shape() gave it; of a divided parameter [elements of the part]
    int64_t offset = 0;  // in elements
    int64_t first = 0;   // of the elements that it has in one process, the first that is here
  };
  // The place of a parameter. `offset` is in elements from the start of the slab.
  struct Slot {
    Tensor parameter;
    size_t group = 0, slab = 0;  // numbers of these
    int64_t offset = 0;
    std::string name;     // the parameter's, or "group.index" where it has none
    bool is_here = true;  // of its elements, or of none, this is the owner
    std::vector<std::optional<State>> states = {};  // those that are here
    // The elements that this rank updates and has the gradient of: the parameter, or, for a divided
    // one, a view of them, [elements]. Undefined if others update all of it.
    ElementRange own = {};
    Tensor part = {};

    // Whether others update elements of it, too.
    bool is_divided() const { return part && own.size < parameter.numel(); }
  };
  // Consecutive parameters of one `group` in one `slab` that have the same states, or a part of one
  // parameter: one dispatch updates them.
  struct Run {
    size_t group = 0, slab = 0;
    ElementRange elements;             // of all that is in the slab
    std::vector<ElementRange> states;  // of the slab's states
    size_t first_slot = 0, slots = 0;  // the parameters
    bool is_elsewhere = false;         // another rank updates it
    bool is_staged = false;            // offloaded, and on the device for the update (StateStaging)
    bool is_on_host = false;           // offloaded, and updated by the host's processor
  };
  // Parts of a parameter begin at multiples of this many elements, like rows of the gradient table:
  // so sums over them, and with them all bits, are those of the whole.
  static constexpr int64_t part_unit = int64_t{1} << 18;

  // Throws AutogradError for parameters that appear twice, share storage or belong to another
  // optimizer. A run may be a part of a parameter whose elements are updated by themselves, where
  // its states are offloaded or in parts. `is_separate`: each parameter has a slab and a run of its
  // own, the whole of it.
  static Placement of(const std::vector<ParameterGroup>& groups, const StateRule& rule,
                      bool is_separate = false);

  std::vector<Slab> slabs;             // in the order of their parameters
  std::vector<Slot> slots;             // one per parameter
  std::vector<Run> runs;               // all slots, in order
  std::optional<Ownership> ownership;  // of the slots
  bool keeps_parts = false;            // ranks keep the parameters in parts, too
  uint64_t streamed_bytes = 0;         // Offload::parameter_bytes; each has a slab of its own then
};

// The groups, with the states in host memory, or the parameters as well, where they and the
// gradients take most of so many bytes of a device that has memory of its own. Groups that say
// themselves where that is stay as they are.
std::vector<ParameterGroup> placed_within(uint64_t bytes, std::vector<ParameterGroup> groups,
                                          const StateRule& rule);

}  // namespace rw
