// Decisions about updates that the device makes: loss scale, overflows, clipping, schedule, counts.
#pragma once

#include <functional>

#include "../../core/tensor/tensor.h"
#include "../schedules/schedule.h"
#include "loss_scaler.h"

namespace rw {

// An optimizer's control buffer, and the arguments of its kernel, update_prepare. Reading it waits
// for the device.
class UpdateControl {
 public:
  // Without updates so far, and LossScaler::none(), for a table of gradients with so many chunks.
  UpdateControl(Device& device, uint32_t chunks);

  // f32 [STATE_SIZE + 2 * chunks]
  const Tensor& buffer() const { return buffer_; }
  // Parts of it: the values, the higher digits of counts, [STATE_HIGH] each, and the digits of the
  // updates that parameters missed, [chunks, 2].
  Tensor values() const { return make_view(buffer_, {STATE_HIGH}, {1}, 0); }
  Tensor high_digits() const { return make_view(buffer_, {STATE_HIGH}, {1}, STATE_HIGH); }
  Tensor missed() const;
  void set_scaler(const LossScaler& scaler);  // starts it afresh
  const LossScaler& scaler() const { return scaler_; }
  // d(scale * weight * loss) / d loss, with the current loss scale on the device.
  Tensor seed(const Tensor& loss, float weight) const;
  // A part of an update (PREPARE_*), with gradients that are divided by `weight`, from the result
  // of GradientTable::stats().
  void prepare(uint32_t part, float weight, const Tensor& stats) const;
  // Counts an update that parameters missed: those without a gradient by the statistics.
  void count_missed(const Tensor& stats) const;
  // Begins a window of micro-batches, each of which is judged alone (PREPARE_MICRO_BATCH).
  void begin_judging() const;

  float read(int slot) const;      // STATE_*
  uint64_t count(int slot) const;  // the same of a count
  UpdateCounts counts() const;     // of the loss scale's history

  Schedule schedule;
  float max_norm = 0;  // 0: no clipping

 private:
  void decide(const std::function<void()>& kernel) const;

  Tensor buffer_;
  LossScaler scaler_;
};

}  // namespace rw
