// Dropout by the counters and `keep` of the struct COUNTERS.
#include "random/random_words.glsl"

// Returns x / keep or 0 for elements i to i + 3, by a select, since 0 * inf is NaN.
vec4 drop(uint i, vec4 x) {
  bvec4 kept = lessThan(uniform_from(random_words(i / 4)), vec4(COUNTERS.keep));
  return mix(vec4(0.0), x / COUNTERS.keep, kept);
}
