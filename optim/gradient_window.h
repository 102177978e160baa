// What Accumulate keeps of the gradients between two micro-batches.
#pragma once

#include <string>
#include <vector>

#include "rewind/optim/parameters.h"

namespace rw {

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
