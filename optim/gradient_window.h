// What Accumulate keeps of the gradients between two micro-batches.
#pragma once

#include <string>
#include <vector>

#include "rewind/optim/parameters.h"

namespace rw {

struct UpdateTarget;

// The sums of a window of micro-batches. While a micro-batch runs they are its parameters' grad(),
// so that backward adds to them; between two they are kept here, so that nothing else can: a
// backward pass for other parameters that reaches these (a generator's, through the discriminator)
// leaves its gradients in grad(), for zero_grad() to drop.
class GradientWindow {
 public:
  using Slots = std::vector<FlatParameters::Slot>;

  // Takes the gradients, and the places of those that have not come yet, from the parameters.
  void take(const Slots& slots);
  // Gives them back. What came into grad() meanwhile is dropped.
  void give_back(const Slots& slots);
  void clear() { kept_.clear(); }

  // Adds what is in grad() to the sums that were taken, unless the control buffer says that the
  // micro-batch is voided. `target` is the run's, with these gradients in its table.
  void fold(const Slots& slots, const FlatParameters::Run& run, const UpdateTarget& target);
  // The sum of slot number `i`, of which there was none, for the caller to fill.
  Tensor begin_sum(const Slots& slots, size_t i);

  bool holds_them() const { return !kept_.empty(); }  // between the two
  // The sum of slot number `i`, wherever it is now; undefined: there is none.
  Tensor sum(const Slots& slots, size_t i) const;

 private:
  struct Kept {
    Tensor sum, place;
  };
  std::vector<Kept> kept_;  // one per slot, or none
};

}  // namespace rw
