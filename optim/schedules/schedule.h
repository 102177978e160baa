// Learning-rate schedules as a factor on each group's learning rate. The device computes the factor
// from the number of updates done, so skipped updates do not advance a schedule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rw {

// All counts are updates, not micro-batches. The first `warmup` updates rise linearly to 1; `total`
// includes them. After `total` the factor stays at its last value. Plateau follows a metric
// instead.
struct Schedule {
  // How the factor falls after the warm-up: constant (not at all), cosine, linear, step (by `gamma`
  // every `period` updates), polynomial, multistep (by gamma at milestones), restarts (cosine again
  // and again), noam and one_cycle (see below).
  enum class Kind : uint32_t {
    constant,
    cosine,
    linear,
    step,
    polynomial,
    multistep,
    restarts,
    noam,
    one_cycle
  };
  static constexpr size_t most_milestones = 8;   // of multistep
  static constexpr uint32_t never = 0xffffffff;  // a milestone that is not there

  Kind kind = Kind::constant;  // which of them
  uint32_t warmup = 0;
  uint32_t total = 0;
  uint32_t period = 1;  // of step; of restarts the first one
  float floor = 0;      // the last factor of cosine, linear, polynomial, restarts and one_cycle
  // The factor per period for step and multistep; the power for polynomial; the growth of the
  // periods for restarts; the highest factor for noam; the first one for one_cycle.
  float gamma = 1;
  float peak = 0;  // of one_cycle: where it is 1, which may lie between two updates
  std::array<uint32_t, most_milestones> milestones = {never, never, never, never,
                                                      never, never, never, never};

  static Schedule constant(uint32_t warmup = 0);  // 1
  // floor + (1 - floor) * (1 + cos(pi * progress)) / 2 (Loshchilov and Hutter 2017). ValueError,
  // here and below, unless total > warmup and 0 <= floor <= 1.
  static Schedule cosine(uint32_t total, uint32_t warmup = 0, float floor = 0);
  // BERT's, as Hugging Face's get_linear_schedule_with_warmup except for the warm-up: theirs begins
  // with an update of rate 0, this one with 1 / warmup.
  static Schedule linear(uint32_t total, uint32_t warmup = 0, float floor = 0);
  // gamma to the number of whole periods since the warm-up.
  static Schedule step(uint32_t period, float gamma = 0.1f, uint32_t warmup = 0);
  // gamma to the number of updates since the warm-up.
  static Schedule exponential(float gamma, uint32_t warmup = 0);
  // gamma to the number of milestones reached, counted from the first update. At most 8, in rising
  // order (ValueError).
  static Schedule multistep(const std::vector<uint32_t>& milestones, float gamma = 0.1f,
                            uint32_t warmup = 0);
  // floor + (1 - floor) * (1 - progress)^power.
  static Schedule polynomial(uint32_t total, float power, uint32_t warmup = 0, float floor = 0);
  // Cosine that starts again after `period` updates, and each time after `growth` times as many
  // (PyTorch's CosineAnnealingWarmRestarts, T_0 and T_mult; Loshchilov and Hutter 2017).
  static Schedule restarts(uint32_t period, uint32_t growth = 1, uint32_t warmup = 0,
                           float floor = 0);
  // The Transformer's (Vaswani et al. 2017): model_size^-0.5 * min(n^-0.5, n * warmup^-1.5) for
  // update n, from 1. It is meant for a learning rate of 1. ValueError unless both are positive.
  static Schedule noam(uint32_t model_size, uint32_t warmup);
  // From 1 / div_factor up to 1 within pct_start of the updates and down to 1 / div_factor /
  // final_div_factor with the last, along cosines (Smith and Topin 2018; PyTorch's OneCycleLR, the
  // learning rate being max_lr). The momentum stays. ValueError unless pct_start * total > 1,
  // pct_start < 1 and the divisors are >= 1.
  static Schedule one_cycle(uint32_t total, float pct_start = 0.3f, float div_factor = 25,
                            float final_div_factor = 1e4f);

  // The factor of the update that follows `done` others, by the device's formula, for printing.
  double factor(uint64_t done) const;
};

}  // namespace rw
