// The random words of a tensor's elements.
#include "common/philox.glsl"

// Returns the four words of elements 4 * block to 4 * block + 3.
#ifndef COUNTERS
#define COUNTERS p  // the struct with seed_lo, seed_hi, counter_lo, counter_hi
#endif
uvec4 random_words(uint block) {
  uint low = COUNTERS.counter_lo + block;
  uint high = COUNTERS.counter_hi + (low < block ? 1 : 0);
  return philox(uvec4(low, high, 0, 0), uvec2(COUNTERS.seed_lo, COUNTERS.seed_hi));
}
