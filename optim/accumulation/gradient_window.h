// What Accumulate keeps of the gradients between two micro-batches.
#pragma once

#include <string>
#include <vector>

#include "../base/gradient_table.h"

namespace rw {

// The sums of a window of micro-batches. While a micro-batch runs they are its parameters' grad(),
// so that backward adds to them; between two they are kept here, so that nothing else can: a
// backward pass for other parameters that reaches these (a generator's, through the discriminator)
// leaves its gradients in grad(), for zero_grad() to drop.
//
// Or they stay here for the whole window, and gradients are added to them: those of a micro-batch
// that was judged (fold), or in 16 bits each one when backward has completed it (collect).
class GradientWindow {
 public:
  using Slots = std::vector<FlatParameters::Slot>;

  // Takes the gradients, and the places of those that have not come yet, from the parameters.
  void take(const Slots& slots);
  // The same where the places are of 16 bits, with others of what rounding leaves out.
  void take_rests(const Slots& slots);
  // Gives them back. What came into grad() meanwhile is dropped.
  void give_back(const Slots& slots);
  // Gives sums of 16 bits back as f32, into the places that the parameters have.
  void widen(const Slots& slots);
  void clear();

  bool holds_them() const { return !kept_.empty(); }  // between taking and giving
  // The sum of slot number `i`, wherever it is now, and what rounding left out of it; undefined:
  // there is none.
  Tensor sum(const Slots& slots, size_t i) const;
  Tensor rest(size_t i) const;
  // The sum of slot number `i`, of which there was none, for the caller to fill.
  Tensor begin_sum(const Slots& slots, size_t i);

  // Adds what is in grad(), which `table` has located, to the sums that were taken, unless the
  // control buffer says that the micro-batch is voided.
  void fold(const FlatParameters& parameters, GradientTable& table, const Tensor& control);
  // Adds grad() of slot number `i` to its sum of 16 bits and drops it, while this is wanted.
  void collect(const Tensor& parameter, size_t i);
  void set_collecting(bool collects) { collects_ = collects; }

 private:
  struct Kept {
    Tensor sum, place, rest;
  };
  std::vector<Kept> kept_;  // one per slot, or none
  bool collects_ = false;
};

}  // namespace rw
