// Tests for NaN and infinity by their bits, since drivers may assume that floats are finite. docs/kernels.md has the
// rules.

#ifndef NAN
#define NAN uintBitsToFloat(0x7fc00000u)
#define INFINITY uintBitsToFloat(0x7f800000u)

uint magnitude_bits(float x) { return floatBitsToUint(x) & 0x7fffffffu; }
uvec4 magnitude_bits(vec4 x) { return floatBitsToUint(x) & 0x7fffffffu; }
bool is_nan(float x) { return magnitude_bits(x) > 0x7f800000u; }
bvec4 is_nan(vec4 x) { return greaterThan(magnitude_bits(x), uvec4(0x7f800000u)); }
bool is_finite(float x) { return magnitude_bits(x) < 0x7f800000u; }
bool is_negative(float x) { return (floatBitsToUint(x) & 0x80000000u) != 0; }
// Counts denormals as zeros: drivers may flush them anywhere, unless the bits are tested.
bool is_zero(float x) { return magnitude_bits(x) < 0x00800000u; }

// max and min in which NaN wins, as in PyTorch.
float nan_max(float x, float y) { return is_nan(x) ? x : is_nan(y) ? y : max(x, y); }
float nan_min(float x, float y) { return is_nan(x) ? x : is_nan(y) ? y : min(x, y); }
int nan_max(int x, int y) { return max(x, y); }
int nan_min(int x, int y) { return min(x, y); }

// Some drivers' exp() of NaN is infinite.
float real_exp(float x) { return is_nan(x) ? x : exp(x); }
vec4 real_exp(vec4 x) { return mix(exp(x), x, is_nan(x)); }
#define exp(x) real_exp(x)

// Rounds toward zero, to the nearest i32 at the ends of its range; NaN gives 0. GLSL leaves all but the first
// undefined.
int to_int(float x) {
  if (is_nan(x)) return 0;
  return x >= 2147483648.0 ? 0x7fffffff : x < -2147483648.0 ? 0x80000000 : int(x);
}
int to_int(int x) { return x; }
ivec4 to_int(vec4 x) { return ivec4(to_int(x.x), to_int(x.y), to_int(x.z), to_int(x.w)); }
ivec4 to_int(ivec4 x) { return x; }
#endif
