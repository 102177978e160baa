// Calls single kernels on every level of the cpu backend's loops and compares them with the
// reference.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../../core/base/dtype.h"
#include "../../fixtures/element_bytes.h"

namespace rw::test {

// The contents of a binding before the call.
enum class Fill {
  numbers,   // from -3 to 3
  positive,  // from 0.1 to 4
  specials,  // numbers, some of them NaN, infinite, zero, denormal or large
  bits,      // only 0 and 1
  given,     // LoopArgument::values
};

inline constexpr DType f32 = DType::f32, i32 = DType::i32;
inline constexpr Fill fills[] = {Fill::numbers, Fill::specials};
inline constexpr double summed = 2e-5;  // the tolerance of sums

struct LoopArgument {
  uint64_t count;
  DType dtype = DType::f32;
  Fill fill = Fill::numbers;
  std::vector<float> values = {};
};

struct LoopCase {
  std::string_view kernel;
  std::vector<LoopArgument> arguments;  // the kernel decides what it reads and writes
  std::vector<uint32_t> variant = {};
  // For f32, relative to an element and to all; 16 bits have two roundings.
  double tolerance = 2e-6;
};

// Runs the case with these parameters on the reference and on the cpu backend at each level that
// the machine has, and compares every binding afterwards.
void check_loop(const LoopCase& c, std::span<const std::byte> params);

template <class P>
void check_loop(const LoopCase& c, const P& params) {
  check_loop(c, std::as_bytes(std::span(&params, 1)));
}

// Calls body at each level that this machine has.
void at_each_level(const std::function<void(std::string_view level)>& body);

}  // namespace rw::test
