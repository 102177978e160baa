// Decisions about updates that the device makes: loss scale, overflows, clipping, schedule, counts.
#pragma once

#include "../../core/tensor/tensor.h"
#include "../schedules/schedule.h"
#include "loss_scaler.h"

namespace rw {

// An optimizer's control buffer, and the arguments of its kernel, update_prepare. Reading it waits
// for the device.
class UpdateControl {
 public:
  explicit UpdateControl(Device& device);  // without updates so far, and LossScaler::none()

  const Tensor& buffer() const { return buffer_; }  // f32 [STATE_SIZE]
  void set_scaler(const LossScaler& scaler);        // starts it afresh
  const LossScaler& scaler() const { return scaler_; }
  // d(scale * weight * loss) / d loss, with the current loss scale on the device.
  Tensor seed(const Tensor& loss, float weight) const;
  // A part of an update (PREPARE_*), with gradients that are divided by `weight`, from the result
  // of GradientTable::stats().
  void prepare(uint32_t part, float weight, const Tensor& stats) const;
  // Begins a window of micro-batches, each of which is judged alone (PREPARE_MICRO_BATCH).
  void begin_judging() const;

  float read(int slot) const;   // STATE_*
  UpdateCounts counts() const;  // of the loss scale's history

  Schedule schedule;
  float max_norm = 0;  // 0: no clipping

 private:
  Tensor buffer_;
  LossScaler scaler_;
};

}  // namespace rw
