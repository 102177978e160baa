// Philox4x32-10 (Salmon et al. 2011): counter-based random words, the same in every backend.

uvec4 philox(uvec4 counter, uvec2 key) {
  for (uint round = 0; round < 10; ++round) {
    uvec2 high, low;
    umulExtended(counter.xz, uvec2(0xD2511F53u, 0xCD9E8D57u), high, low);
    counter = uvec4(high.y ^ counter.y ^ key.x, low.y, high.x ^ counter.w ^ key.y, low.x);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

// The four words of elements 4 * block to 4 * block + 3.
#ifndef COUNTERS
#define COUNTERS p  // the struct that has seed_lo, seed_hi, counter_lo, counter_hi
#endif
uvec4 random_words(uint block) {
  uint low = COUNTERS.counter_lo + block;
  uint high = COUNTERS.counter_hi + (low < block ? 1 : 0);
  return philox(uvec4(low, high, 0, 0), uvec2(COUNTERS.seed_lo, COUNTERS.seed_hi));
}

// [0, 1) with 24 bits: every value is exact in f32.
vec4 uniform_from(uvec4 words) { return vec4(words >> 8) * (1.0 / 16777216.0); }
