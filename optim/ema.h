// Averages of the parameters over updates, for evaluation.
#pragma once

#include <memory>

#include "base/optimizer.h"

namespace rw {

// Follows an optimizer by itself: once per update, so once per window of Accumulate, and not at all
// if an overflow skips the update.
class ParameterAverage {
 public:
  // Exchanges the parameters with their averages, and back. No update may run in between.
  // AutogradError if they are exchanged already.
  void apply();
  void restore();

  bool is_applied() const;  // between the two

  // For checkpoints: "ema.NAME" (Swa: "swa.NAME") and when the average began. Views; not while
  // applied.
  Optimizer::NamedState state() const;
  void load_state(const Optimizer::NamedState& saved);

 protected:
  class Averages;
  explicit ParameterAverage(std::shared_ptr<Averages> averages);

 private:
  std::shared_ptr<Averages> averages_;
};

// How an average follows the parameters.
struct EmaOptions {
  float decay = 0.999f;  // the share of the average that remains per update, in [0, 1) (ValueError)
  // Weighs the parameters after each update as if there had been nothing before the first; without
  // it, the average starts at the current parameters.
  bool bias_correction = false;
};

// An exponential moving average: average = decay * average + (1 - decay) * parameter once per
// update.
class Ema : public ParameterAverage {
 public:
  explicit Ema(Optimizer& optimizer, const EmaOptions& options = {});
};

// Stochastic weight averaging (Izmailov et al. 2018): from now on, the mean of the parameters after
// every `every`-th update (ValueError for 0), as torch.optim.swa_utils.AveragedModel. Create it
// when the averaging is to begin, and give the optimizer a constant or cyclic schedule for it.
// Running statistics of batch norms do not follow: run some batches in training mode while it is
// applied.
class Swa : public ParameterAverage {
 public:
  explicit Swa(Optimizer& optimizer, uint32_t every = 1);
};

}  // namespace rw
