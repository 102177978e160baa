// Loss scaling: keeps f16 gradients in range. The rules run on the device, in update_prepare.
#pragma once

#include <cstdint>
#include <string>

namespace rw {

// An overflow (an infinite or NaN gradient) skips the update and counts as bad. At `hysteresis` bad
// ones the scale is multiplied by `backoff`; after `interval` finite updates in a row by `growth`.
struct LossScaler {
  bool is_dynamic = false;  // the scale changes
  float initial = 1;        // scale to begin with
  float growth = 2, backoff = 0.5f;
  uint32_t interval = 2000, hysteresis = 1;
  bool keep_bad = false;     // bad ones add up across finite updates
  float floor = 1;           // least scale; PyTorch has none: set it lower where gradients need it
  float ceiling = 0x1p127f;  // largest scale

  static LossScaler none();              // scale 1; overflows still skip the update
  static LossScaler fixed(float scale);  // the same with another scale
  static LossScaler dynamic(float initial = 65536, float growth = 2, float backoff = 0.5f,
                            uint32_t interval = 2000);  // PyTorch's GradScaler
  // TensorFlow's ExponentialUpdateLossScaleManager, with its argument names and defaults.
  static LossScaler tensorflow(float init_loss_scale, uint32_t incr_every_n_steps,
                               uint32_t decr_every_n_nan_or_inf = 2, float incr_ratio = 2,
                               float decr_ratio = 0.8f);

  void validate() const;  // throws ValueError for numbers that make no sense
};

// What the device knows about past updates: the scale now, `updates` done and `skipped`.
struct UpdateCounts {
  float scale = 1;
  uint64_t updates = 0, skipped = 0;
  uint64_t skipped_in_a_row = 0;  // up to now
};

// One sentence on what the counts mean, and what to do about it.
std::string diagnose(const LossScaler& scaler, const UpdateCounts& counts);

}  // namespace rw
