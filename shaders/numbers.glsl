// NaN and infinity by their bits: drivers may assume that floats are finite.

#define NAN uintBitsToFloat(0x7fc00000u)
#define INFINITY uintBitsToFloat(0x7f800000u)

uint magnitude_bits(float x) { return floatBitsToUint(x) & 0x7fffffffu; }
uvec4 magnitude_bits(vec4 x) { return floatBitsToUint(x) & 0x7fffffffu; }
bool is_nan(float x) { return magnitude_bits(x) > 0x7f800000u; }
bool is_finite(float x) { return magnitude_bits(x) < 0x7f800000u; }

// max and min in which a NaN wins, as in PyTorch.
float nan_max(float x, float y) { return is_nan(x) ? x : is_nan(y) ? y : max(x, y); }
float nan_min(float x, float y) { return is_nan(x) ? x : is_nan(y) ? y : min(x, y); }
int nan_max(int x, int y) { return max(x, y); }
int nan_min(int x, int y) { return min(x, y); }
