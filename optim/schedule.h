// Learning-rate schedules as a factor on each group's learning rate. The device computes the factor
// from the number of updates done, so skipped updates do not advance a schedule.
#pragma once

#include <cstdint>

namespace rw {

// All counts are updates, not micro-batches. `warmup` updates rise linearly to 1 first; `total`
// includes them. After `total` the factor stays where it ended.
struct Schedule {
  // How the factor falls after the warm-up: constant (not at all), cosine, linear, step (by `gamma`
  // every `period` updates), polynomial.
  enum class Kind : uint32_t { constant, cosine, linear, step, polynomial };
  Kind kind = Kind::constant;  // which of them
  uint32_t warmup = 0;
  uint32_t total = 0;
  uint32_t period = 1;  // of step
  float floor = 0;      // the last factor of cosine, linear and polynomial
  float gamma = 1;      // of step: factor per period; of polynomial: the power

  static Schedule constant(uint32_t warmup = 0);  // 1
  // floor + (1 - floor) * (1 + cos(pi * progress)) / 2 (Loshchilov and Hutter 2017). ValueError,
  // here and below, unless total > warmup and 0 <= floor <= 1.
  static Schedule cosine(uint32_t total, uint32_t warmup = 0, float floor = 0);
  // BERT's, as Hugging Face's get_linear_schedule_with_warmup but for the warm-up: theirs begins
  // with an update of rate 0, this one with 1 / warmup.
  static Schedule linear(uint32_t total, uint32_t warmup = 0, float floor = 0);
  // gamma to the number of whole periods since the warm-up.
  static Schedule step(uint32_t period, float gamma = 0.1f, uint32_t warmup = 0);
  // floor + (1 - floor) * (1 - progress)^power.
  static Schedule polynomial(uint32_t total, float power, uint32_t warmup = 0, float floor = 0);

  // The factor of the update that follows `done` others: the device's formula, for printing.
  double factor(uint64_t done) const;
};

}  // namespace rw
