#include "optim/base/update_control.h"

#include <algorithm>
#include <cmath>

#include "core/tensor/launch.h"
#include "ops/ops.h"

namespace rw {

UpdateControl::UpdateControl(Device& device, uint32_t chunks) {
  const PurposeScope purpose(Purpose::optimizer);
  buffer_ = empty({STATE_MISSED(int64_t{chunks})}, DType::f32, device.shared_from_this());
  fill_(buffer_, 0);
  set_scaler(LossScaler::none());
}

void UpdateControl::set_scaler(const LossScaler& scaler) {
  scaler_ = scaler;
  static_assert(STATE_SCALE == 0 && STATE_GOOD == 1 && STATE_BAD == 2);
  const std::vector<float> fresh = {scaler.initial, 0, 0};
  make_view(buffer_, {3}, {1}, STATE_SCALE).copy_from(fresh);
  static_assert(STATE_GROWTHS == STATE_FALLS + 1);
  fill_(make_view(buffer_, {2}, {1}, STATE_FALLS), 0);
  for (const int slot : {STATE_GOOD, STATE_BAD, STATE_FALLS, STATE_GROWTHS})
    fill_(make_view(buffer_, {1}, {1}, slot + STATE_HIGH), 0);
}

Tensor UpdateControl::missed() const {
  return make_view(buffer_, {(buffer_.numel() - STATE_SIZE) / 2, 2}, {2, 1}, STATE_SIZE);
}

// The seed is read from the control buffer: it is exact in f32 for any dtype of the loss, and the
// host does not wait. A weight of 1 takes the same way, so that all steps allocate alike.
Tensor UpdateControl::seed(const Tensor& loss, float weight) const {
  check<ShapeError>(loss.numel() == 1, "optimizer", "the loss must have one element, got {}", loss);
  check(std::isfinite(weight), "optimizer", "the weight must be finite, got {}", weight);
  const NoGrad guard;
  const Tensor scale = make_view(buffer_, loss.shape(), dense_strides(loss.shape()), STATE_SCALE);
  return affine(scale, weight, 0);
}

void UpdateControl::prepare(uint32_t part, float weight, const Tensor& stats) const {
  // Overflow flags of one run, or sums of squares, flags and scales of all runs.
  const int64_t chunks = part == PREPARE_CHECK ? stats.numel() : stats.numel() / 3;
  kernels::UpdatePrepareParams p{.offset = {},
                                 .chunks = static_cast<uint32_t>(chunks),
                                 .weight = weight,
                                 .max_norm = max_norm,
                                 .schedule = static_cast<uint32_t>(schedule.kind),
                                 .warmup = schedule.warmup,
                                 .total = schedule.total,
                                 .period = schedule.period,
                                 .floor_factor = schedule.floor,
                                 .gamma = schedule.gamma,
                                 .peak = schedule.peak,
                                 .milestones = {},
                                 .dynamic = scaler_.is_dynamic,
                                 .keep_bad = scaler_.keep_bad,
                                 .hysteresis = scaler_.hysteresis,
                                 .interval = scaler_.interval,
                                 .growth = scaler_.growth,
                                 .backoff = scaler_.backoff,
                                 .min_scale = scaler_.floor,
                                 .max_scale = scaler_.ceiling};
  static_assert(sizeof(p.milestones) == sizeof(schedule.milestones));
  std::copy(schedule.milestones.begin(), schedule.milestones.end(), p.milestones);
  decide([&] { launch("update_prepare", {in(stats), inout(buffer_)}, p, {.variant = {part}}); });
}

// On the host, if it updates: then it decides with the arithmetic with which it updates.
void UpdateControl::decide(const std::function<void()>& kernel) const {
  if (buffer_.impl().storage->place() == MemoryPlace::device) return kernel();
  buffer_.device().mark()();
  const HostWorkScope scope;
  kernel();
}

void UpdateControl::count_missed(const Tensor& stats) const {
  const auto chunks = static_cast<uint32_t>(stats.numel() / 3);
  decide([&] {
    launch("count_missed", {in(stats), inout(buffer_)},
           kernels::GradStatsParams{.offset = {}, .chunks = chunks}, {.threads = {chunks, 1, 1}});
  });
}

void UpdateControl::begin_judging() const {
  static_assert(STATE_WINDOW_VOIDED == STATE_WINDOW_WEIGHT + 1);
  fill_(make_view(buffer_, {2}, {1}, STATE_WINDOW_WEIGHT), 0);
  fill_(make_view(buffer_, {1}, {1}, STATE_WINDOW_VOIDED + STATE_HIGH), 0);
}

float UpdateControl::read(int slot) const {
  return make_view(buffer_, {}, {}, slot).item();
}

namespace {

uint64_t count_at(const std::vector<float>& state, int slot) {
  const auto digit = [&](int at) { return static_cast<uint64_t>(state[static_cast<size_t>(at)]); };
  return (digit(slot + STATE_HIGH) << 24) + digit(slot);
}

}  // namespace

uint64_t UpdateControl::count(int slot) const {
  return count_at(make_view(buffer_, {STATE_SIZE}, {1}, 0).to_vector(), slot);
}

UpdateCounts UpdateControl::counts() const {
  const std::vector<float> state = make_view(buffer_, {STATE_SIZE}, {1}, 0).to_vector();
  const auto count = [&](int slot) { return count_at(state, slot); };
  return {.scale = state[STATE_SCALE],
          .updates = count(STATE_UPDATES),
          .skipped = count(STATE_SKIPPED),
          .skipped_in_a_row = count(STATE_SKIPPED_IN_A_ROW),
          .falls = count(STATE_FALLS),
          .growths = count(STATE_GROWTHS),
          .voided = count(STATE_VOIDED)};
}

}  // namespace rw
