// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). An op takes a range of counters
// and keeps where it began, so replay draws the same numbers with no state to save.
#pragma once

#include <cstdint>

namespace rw {

class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(seed) {}

  struct Counters {
    uint64_t seed, first;
  };
  // Reserves the counters for n elements (four per counter).
  Counters take(uint64_t n) {
    const Counters taken{seed_, next_};
    next_ += (n + 3) / 4;
    return taken;
  }

  void seed(uint64_t seed) { seed_ = seed, next_ = 0; }
  uint64_t seed() const { return seed_; }
  uint64_t position() const { return next_; }  // with seed(): the whole state
  void set_position(uint64_t position) { next_ = position; }

 private:
  uint64_t seed_, next_ = 0;
};

// The generator of this process's random ops.
Generator& default_generator();
void manual_seed(uint64_t seed);

}  // namespace rw
