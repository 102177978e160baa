// A learning rate that falls when a metric stops improving.
#pragma once

#include <cstdint>

#include "optimizer.h"

namespace rw {

// PyTorch's ReduceLROnPlateau, with its names and defaults. ValueError unless factor is in (0, 1)
// and the others are >= 0.
struct PlateauOptions {
  bool maximize = false;               // a larger metric is a better one
  double factor = 0.1;                 // of the learning rate
  uint32_t patience = 10;              // metrics without an improvement that are let pass
  double threshold = 1e-4;             // least improvement that counts
  bool threshold_is_absolute = false;  // else relative to the best
  uint32_t cooldown = 0;               // metrics after a reduction that do not count as bad
  double min_lr = 0;                   // the learning rate falls no further
  double eps = 1e-8;                   // smaller changes of it are left out
};

// Multiplies the optimizer's learning rate, the one before lr_scale and schedule, when the metric
// of an epoch, which the host knows, has not improved for longer than the patience. The optimizer
// must outlive it.
class Plateau {
 public:
  explicit Plateau(Optimizer& optimizer, const PlateauOptions& options = {});

  // Takes the metric of the epoch that ended, and returns whether the learning rate fell. NaN is no
  // improvement.
  bool step(double metric);

  // For checkpoints.
  struct State {
    double best = 0;                 // metric so far
    uint32_t bad = 0, cooldown = 0;  // metrics in a row; those that still do not count
    float learning_rate = 0;         // of the optimizer
  };
  State state() const;
  void load_state(const State& saved);  // sets the optimizer's learning rate too

 private:
  bool is_better(double metric) const;

  Optimizer& optimizer_;
  PlateauOptions options_;
  double best_;
  uint32_t bad_ = 0, cooldown_ = 0;
};

}  // namespace rw
