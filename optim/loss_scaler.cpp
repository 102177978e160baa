#include "rewind/optim/loss_scaler.h"

#include <cmath>

#include "rewind/core/base/error.h"

namespace rw {

LossScaler LossScaler::none() {
  return {};
}

LossScaler LossScaler::fixed(float scale) {
  LossScaler scaler;
  scaler.initial = scale;
  scaler.validate();
  return scaler;
}

LossScaler LossScaler::dynamic(float initial, float growth, float backoff, uint32_t interval) {
  LossScaler scaler{.is_dynamic = true,
                    .initial = initial,
                    .growth = growth,
                    .backoff = backoff,
                    .interval = interval};
  scaler.validate();
  return scaler;
}

LossScaler LossScaler::tensorflow(float init_loss_scale, uint32_t incr_every_n_steps,
                                  uint32_t decr_every_n_nan_or_inf, float incr_ratio,
                                  float decr_ratio) {
  LossScaler scaler{.is_dynamic = true,
                    .initial = init_loss_scale,
                    .growth = incr_ratio,
                    .backoff = decr_ratio,
                    .interval = incr_every_n_steps,
                    .hysteresis = decr_every_n_nan_or_inf,
                    .keep_bad = true};
  scaler.validate();
  return scaler;
}

void LossScaler::validate() const {
  check(std::isfinite(initial) && initial > 0, "loss_scaler", "the scale must be positive, got {}",
        initial);
  if (!is_dynamic) return;
  check(growth >= 1 && std::isfinite(growth), "loss_scaler", "growth must be at least 1, got {}",
        growth);
  check(backoff > 0 && backoff < 1, "loss_scaler", "backoff must be in (0, 1), got {}", backoff);
  check(interval > 0 && hysteresis > 0, "loss_scaler",
        "interval and hysteresis must be positive, got {} and {}", interval, hysteresis);
  check(floor > 0 && floor <= initial && initial <= ceiling && std::isfinite(ceiling),
        "loss_scaler", "0 < floor <= initial <= ceiling must hold, got {}, {} and {}", floor,
        initial, ceiling);
}

std::string diagnose(const LossScaler& scaler, const UpdateCounts& counts) {
  const std::string head = fmt::format("loss scale {:g}, {} updates done, {} skipped", counts.scale,
                                       counts.updates, counts.skipped);
  if (counts.skipped == 0) return head + ": no overflow so far.";
  const uint64_t in_a_row = counts.skipped_in_a_row;
  if (in_a_row > 0 && (!scaler.is_dynamic || counts.scale <= scaler.floor))
    return head +
           fmt::format(
               ": the last {} were not finite and the scale {}, so every such update is lost. Look "
               "for a NaN or an infinity in the loss or the inputs, a learning rate that is too "
               "high, or an f16 op that overflows without scaling.",
               in_a_row, scaler.is_dynamic ? "is at its floor" : "cannot fall");
  // So many overflows divide the scale by far more than f16 spans: it is not the scale.
  if (in_a_row > uint64_t{20} * scaler.hysteresis)
    return head +
           fmt::format(
               ": the last {} were skipped whatever the scale was. Look for a NaN or an infinity "
               "in the loss or the inputs, or an f16 op that overflows without scaling.",
               in_a_row);
  if (in_a_row > 0 && counts.updates == 0)
    return head + ": the scale is still falling to what f16 can hold; this is normal at the start.";
  if (counts.skipped > counts.updates)
    return head + ": most updates were skipped; start from a lower scale.";
  return head + ": normal; the scale falls at each overflow and rises again.";
}

}  // namespace rw
