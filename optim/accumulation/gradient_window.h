// How to treat the gradients of the micro-batches that share an update.
#pragma once

#include <string>
#include <vector>

#include "../base/parameters.h"

namespace rw {

// A window of an Accumulate, from before its first micro-batch to its update. Each way to add
// gradients up is a class: InPlaceWindow, JudgedWindow, NarrowWindow, SharedWindow. A micro-batch
// is begin_pass(), its backward, end_pass() and end_micro_batch(); finish() ends the window, and
// one that is given up is destroyed without it.
//
// Nothing else can reach the sums that are kept here between two micro-batches: a backward pass for
// other parameters that reaches these (a generator's, through the discriminator) leaves its
// gradients in grad(), which begin_pass() drops.
class GradientWindow {
 public:
  virtual ~GradientWindow() = default;
  GradientWindow(const GradientWindow&) = delete;
  GradientWindow& operator=(const GradientWindow&) = delete;

  // The name in a saved state: it says how the sums were made.
  virtual std::string name() const = 0;
  // Surrounds the backward pass of a micro-batch; `is_alone` says that no other optimizer shares
  // it.
  virtual void begin_pass(bool is_alone) = 0;
  virtual void end_pass() {}
  // Adds the gradients that count to the sums. `weights` has the relative weight of the
  // micro-batch, or of one of each rank, by rank; one of weight 0 has no gradients.
  virtual void end_micro_batch(const std::vector<float>& weights) = 0;
  // Makes the sums grad() of the parameters that the micro-batches reached.
  virtual void finish() = 0;
  // Whether an overflow voids its micro-batch alone. The control buffer then has the weight of
  // those that count.
  virtual bool is_judged() const { return false; }

  // The sum of slot number `i`, and what rounding left out of it; undefined if there is none.
  Tensor sum(size_t i) const;
  Tensor rest(size_t i) const { return sum(i) && !kept_.empty() ? kept_[i].rest : Tensor(); }
  // The sum of slot number `i`, which did not exist, for the caller to fill.
  Tensor begin_sum(size_t i);

 protected:
  struct Kept {
    Tensor sum, place, rest;
  };
  explicit GradientWindow(const FlatParameters& parameters) : parameters_(parameters) {}
  // Takes the gradients, and the places of those that have not arrived yet, from the parameters,
  // and gives them back. Gradients that arrive in grad() meanwhile are dropped.
  void take();
  void give_back();
  const std::vector<FlatParameters::Slot>& slots() const { return parameters_.slots(); }

  const FlatParameters& parameters_;
  std::vector<Kept> kept_;  // one per slot, or none: the parameters have them
};

}  // namespace rw
