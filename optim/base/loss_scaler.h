// Loss scaling: keeps f16 gradients in range. The rules run on the device, in update_prepare.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "../../core/base/dtype.h"

namespace rw {

// An overflow (an infinite or NaN gradient) skips the update and counts as bad. After `hysteresis`
// bad ones the scale is multiplied by `backoff`, and after `interval` finite updates in a row by
// `growth`.
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

  bool operator==(const LossScaler&) const = default;
};

// The scaler that activations of this type need: dynamic() for f16, none() for types with the range
// of f32.
LossScaler default_scaler(DType dtype);

// Returns the scaler that a text of the command line names. Numbers that are left out at the end
// have the defaults of the function of that name.
//   none
//   fixed:N
//   dynamic[:INITIAL[:GROWTH[:BACKOFF[:INTERVAL]]]]
//   tensorflow[:INITIAL[:INCR_EVERY[:DECR_EVERY[:INCR_RATIO[:DECR_RATIO]]]]]
// TensorFlow's manager has no defaults for the first two; they are Keras's, 32768 and 2000.
// ValueError, with these forms, for another text.
LossScaler parse_loss_scale(std::string_view text);
// The text from which parse_loss_scale() makes this scaler; floor, ceiling and a `hysteresis` that
// dynamic() cannot have are left out.
std::string loss_scale_text(const LossScaler& scaler);

// The facts about past updates: the current scale, and the numbers of updates and of skipped ones.
struct UpdateCounts {
  float scale = 1;
  uint64_t updates = 0, skipped = 0;
  uint64_t skipped_in_a_row = 0;  // up to now
  uint64_t falls = 0;             // of the scale, since it last grew
  uint64_t growths = 0;           // of the scale
  uint64_t voided = 0;            // micro-batches that overflowed alone (Accumulate::set_overflow)
  // The share of the 16-bit gradients most of whose values are denormal, if a NumericsMonitor has
  // looked.
  double denormal_gradients = 0;
};

// Explains in one sentence what the counts mean, and what to do about it.
std::string diagnose(const LossScaler& scaler, const UpdateCounts& counts);

}  // namespace rw
