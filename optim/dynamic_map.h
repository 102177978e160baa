// The numbers that 8-bit codes stand for in 8-bit optimizers.
#pragma once

#include <array>
#include <cstdint>

namespace rw {

// Dynamic quantisation, of numbers in [-1, 1] or [0, 1] (Dettmers et al. 2022, "8-bit Optimizers
// via Block-wise Quantization", section 2.2): the leading zero bits of a code are a decimal
// exponent of 0 to -6, the bits after them a fraction, linear in [0.1, 1]; without a sign there is
// one more bit of fraction. The values of all codes in rising order, 0 and 1 among them; -1 is not.
std::array<float, 256> dynamic_map(bool is_signed);

// The bounds of rounding: [i] is the mean of codes i and i + 1. The nearest code of x is the number
// of bounds below x, so a tie goes to the lower code. The last bound is infinite.
std::array<float, 256> dynamic_bounds(const std::array<float, 256>& map);

}  // namespace rw
