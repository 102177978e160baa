// An exponential moving average of the parameters, for evaluation.
#pragma once

#include <memory>

#include "rewind/optim/optimizer.h"

namespace rw {

// How an average follows.
struct EmaOptions {
  float decay = 0.999f;  // what is kept of the average per update, in [0, 1) (ValueError)
  // Weighs the parameters after each update as if there had been nothing before the first; without
  // it the average starts at the parameters as they are now.
  bool bias_correction = false;
};

// Follows the optimizer by itself: average = decay * average + (1 - decay) * parameter once per
// update, so once per window of Accumulate, and not at all where an overflow skips the update.
class Ema {
 public:
  explicit Ema(Optimizer& optimizer, const EmaOptions& options = {});

  // Exchanges the parameters with their averages, and back. No update may run in between.
  // AutogradError where that is so already.
  void apply();
  void restore();

  bool is_applied() const;  // between the two

  // For checkpoints: "ema.NAME" and what the bias correction needs. Views; not while applied.
  Optimizer::NamedState state() const;
  void load_state(const Optimizer::NamedState& saved);

 private:
  class Averages;
  std::shared_ptr<Averages> averages_;
};

}  // namespace rw
