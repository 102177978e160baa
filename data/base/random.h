// Small random numbers for data: the same on every platform, unlike the distributions of <random>.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace rw {

// SplitMix64 (Steele et al. 2014). Streams of different keys are independent.
class DataRandom {
 public:
  explicit DataRandom(uint64_t seed, uint64_t a = 0, uint64_t b = 0)
      : state_(mix(mix(mix(seed) + a) + b)) {}

  // 64 random bits.
  uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15u); }
  // Uniform in [0, n), for n > 0.
  uint64_t below(uint64_t n) { return static_cast<uint64_t>(static_cast<double>(n) * unit()); }
  // Uniform in [low, high).
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(unit()); }
  // Normally distributed, by the Box-Muller transform.
  float normal(float mean, float std) {
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return mean + std * static_cast<float>(radius * std::cos(2 * std::numbers::pi * unit()));
  }

 private:
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }
  uint64_t state_;
};

}  // namespace rw
