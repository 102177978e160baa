// Micro-batches of which each is judged alone, on the device.
#pragma once

#include "../../core/tensor/launch.h"

namespace rw {

// What the control buffer knows of a window's micro-batches: the weight of those that count, and
// how many were voided (PREPARE_MICRO_BATCH of shaders/params.h).
class WindowJudge {
 public:
  explicit WindowJudge(Tensor control) : control_(std::move(control)) {
    static_assert(STATE_WINDOW_VOIDED == STATE_WINDOW_WEIGHT + 1);
    fill_(make_view(control_, {2}, {1}, STATE_WINDOW_WEIGHT), 0);
  }
  // `stats` of its gradients, as GradientTable::stats(). An overflow in them sets FOUND_INF.
  void judge(const Tensor& stats, float weight) const {
    launch("update_prepare", {in(stats), inout(control_)},
           kernels::UpdatePrepareParams{
               .offset = {}, .chunks = static_cast<uint32_t>(stats.numel() / 2), .weight = weight},
           {.variant = {PREPARE_MICRO_BATCH}});
  }
  const Tensor& control() const { return control_; }

 private:
  Tensor control_;
};

}  // namespace rw
