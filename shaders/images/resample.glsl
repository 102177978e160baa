// Resampling: how an axis of `outputs` places reads one of `size` elements, `scale` elements per place.
#include "images/pixels.glsl"

layout(constant_id = 0) const uint KIND = 0;   //! 0 1 2 3
layout(constant_id = 1) const uint ALIGN = 0;  //! 0 1
layout(constant_id = 2) const uint WHOLE = 0;  //! 0 1

// The elements that a place reads: `count` from `first` on; those outside of the axis are clamped to its ends.
struct Taps {
  int first;
  uint count;
  vec4 weight;
};

bool is_between() { return KIND == RESAMPLE_LINEAR || KIND == RESAMPLE_CUBIC; }
// Returns the shift that is added to places before they are scaled, and subtracted from the result.
float half_pixel() {
  return KIND == RESAMPLE_NEAREST || (is_between() && ALIGN == 1) ? 0.0 : 0.5;
}

// Returns Keys' kernel at distances 1 + t, t, 1 - t, 2 - t.
vec4 cubic_weights(float t) {
  const float a = -0.75;
  vec4 d = vec4(1.0 + t, t, 1.0 - t, 2.0 - t);
  vec4 near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
  vec4 far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
  return vec4(far.x, near.y, near.z, far.w);
}

Taps taps_of(uint o, uint size, float scale) {
  precise float at = (float(o) + half_pixel()) * scale;
  if (!is_between()) return Taps(min(int(floor(at)), int(size) - 1), 1u, vec4(1.0));
  at -= half_pixel();
  if (KIND == RESAMPLE_LINEAR) at = clamp(at, 0.0, float(size - 1));
  float from = floor(at), t = at - from;
  if (KIND == RESAMPLE_LINEAR) return Taps(int(from), t > 0.0 ? 2u : 1u, vec4(1.0 - t, t, 0.0, 0.0));
  return Taps(int(from) - 1, 4u, cubic_weights(t));
}

uint tap_at(Taps t, uint k, uint size) { return uint(clamp(t.first + int(k), 0, int(size) - 1)); }

// Returns the weight with which element i is read.
float weight_at(Taps t, uint i, uint size) {
  float sum = 0.0;
  [[unroll]] for (uint k = 0; k < (KIND == RESAMPLE_CUBIC ? 4 : KIND == RESAMPLE_LINEAR ? 2 : 1); ++k)
    if (k < t.count && tap_at(t, k, size) == i) sum += t.weight[k];
  return sum;
}

// Returns places [begin, end) that include all that read element i.
ivec2 readers_of(uint i, uint size, uint outputs, float scale) {
  if (scale == 0.0) return ivec2(0, outputs);
  float reach = KIND == RESAMPLE_CUBIC ? 2.0 : 1.0, h = half_pixel();
  int begin = int(floor((float(i) - reach + h) / scale - h)) - 1;
  int end = int(ceil((float(i) + reach + h) / scale - h)) + 2;
  return ivec2(i == 0 ? 0 : clamp(begin, 0, int(outputs)),
               i + 1 == size ? int(outputs) : clamp(end, 0, int(outputs)));
}
