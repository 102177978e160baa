// The op table: one row per op and manner of use. The driver is test_ops.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../ops/operators.h"
#include "../../ops/ops.h"

namespace rw::test {

using Tensors = std::vector<Tensor>;

// One input: distinct values of [low, high) in a fixed shuffled order. Float values keep away from
// whole numbers, where the kinks of floor, relu or clamp lie; other dtypes get whole numbers.
struct Input {
  Shape shape;
  float low = -2, high = 2;
  DType dtype = DType::f32;
  bool differentiable = true;
  bool keep_f32 = false;  // stays f32 when the row runs in f16
};

struct OpCase {
  std::string name;
  std::vector<Input> inputs;
  std::function<Tensors(const Tensors&)> run;
  // The step of the differences in double (test_f64_gradients.cpp): smaller than the distance of
  // inputs that must not change their order, and large beside 2^-52, the rounding of an output.
  double step = 0x1p-15;
  // The tolerance of every element, as largest_error() measures it: device against cpu.
  double f32_tolerance = 1e-5;
  double roundings = 6;  // of 16 bits
  // For NaN, infinities and extremes (test_op_extremes.cpp):
  bool elementwise = false;  // each element is a function of one of each input
  float most = 3e38f;    // of its inputs: beyond it, f32 overflows on the way and double does not
  bool spreads = false;  // zeros that are multiplied (padding, keys not seen) may make NaN
};

const std::vector<OpCase>& op_cases();

// Returns the values of input `which` of a row.
std::vector<float> input_values(const Input& input, size_t which);

}  // namespace rw::test
