// Philox4x32-10 (Salmon et al. 2011): random words from counters, the same in every backend.

uvec4 philox(uvec4 counter, uvec2 key) {
  for (uint round = 0; round < 10; ++round) {
    uvec2 high, low;
    umulExtended(counter.xz, uvec2(0xD2511F53u, 0xCD9E8D57u), high, low);
    counter = uvec4(high.y ^ counter.y ^ key.x, low.y, high.x ^ counter.w ^ key.y, low.x);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

// Maps words to [0, 1) with 24 bits, so that every value is exact in f32.
vec4 uniform_from(uvec4 words) { return vec4(words >> 8) * (1.0 / 16777216.0); }
