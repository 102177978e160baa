// sin and cos to about 1 ulp of 1. Vulkan asks only for an absolute error of 2^-11, and drivers make use of that.

#include "common/numbers.glsl"

// Returns one of five words. An array would not do: compilers keep arrays that are indexed in the memory of each
// thread.
uint pick(uint i, uint a, uint b, uint c, uint d, uint e) { return i == 0 ? a : i == 1 ? b : i == 2 ? c : i == 3 ? d : e; }

// Reduces x by 2 / pi, from 2^-3 down, after Payne and Hanek 1983: only those of its bits count that make fractions of
// x.
float large_quarter_turns(float x, out int quadrant) {
  const uint bits = floatBitsToUint(x), mantissa = bits << 8 | 0x80000000u;
  const int exponent = int(bits >> 23 & 255u) - 126;
  const uint i = uint(max(exponent, 0)) >> 5, shift = uint(exponent) & 31u;
  uint high = pick(i, 0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u);
  uint middle = pick(i, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u);
  uint low = pick(i, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);
  if (shift != 0) {
    high = high << shift | middle >> (32 - shift);
    middle = middle << shift | low >> (32 - shift);
    low = low << shift | pick(i, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0u) >> (32 - shift);
  }
  // Quarters of a turn, with 2 bits before and 30 after the point, and 32 more in `rest`, from products of 32 bits.
  uint low_high, middle_high, unused, middle_low, carry;
  umulExtended(mantissa, low, low_high, unused);
  umulExtended(mantissa, middle, middle_high, middle_low);
  const uint rest = uaddCarry(middle_low, low_high, carry);
  const uint turns = mantissa * high + middle_high + carry + 0x20000000u;  // half a unit is added to round
  quadrant = int(turns >> 30);
  const float r = (float(int(turns & 0x3fffffffu) - 0x20000000) + float(rest) * 2.32830644e-10) * 1.46291807927e-9;
  if (!is_negative(x)) return r;
  quadrant = -quadrant & 3;
  return -r;
}

// Reduces x by the nearest multiple of pi / 2, and returns the multiple modulo 4. Up to |x| of 8192 it follows Cody and
// Waite 1980, with pi / 2 in four parts, three of which have exact products.
float quarter_turns(float x, out int quadrant) {
  quadrant = 0;
  if (!is_finite(x)) return NAN;
  if (abs(x) > 8192.0) return large_quarter_turns(x, quadrant);
  float k = floor(x * 0.636619772 + 0.5);
  quadrant = int(k) & 3;
  precise float r = x - k * 1.5703125;
  r = r - k * 4.8375129699707e-4;
  r = r - k * 7.54953362047672e-8;
  r = r - k * 2.563344e-12;
  return r;
}

// Minimax polynomials on [-pi/4, pi/4].
float sin_quarter(float r) {
  float z = r * r;
  return r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
}
float cos_quarter(float r) {
  float z = r * r;
  return 1.0 - 0.5 * z + z * z * (4.166664568e-2 + z * (-1.388731625e-3 + z * 2.443315712e-5));
}

float exact_sin(float x) {
  int quadrant;
  float r = quarter_turns(x, quadrant);
  float y = (quadrant & 1) == 0 ? sin_quarter(r) : cos_quarter(r);
  return quadrant >= 2 ? -y : y;
}
float exact_cos(float x) {
  int quadrant;
  float r = quarter_turns(x, quadrant);
  float y = (quadrant & 1) == 0 ? cos_quarter(r) : sin_quarter(r);
  return quadrant == 1 || quadrant == 2 ? -y : y;
}

#define sin(x) exact_sin(x)
#define cos(x) exact_cos(x)
