// Arithmetic and comparisons of tensors with tensors and numbers, as operators.
#pragma once

#include <concepts>
#include <utility>

#include "../core/tensor/tensor.h"

namespace rw {

// A number beside a tensor. It takes the dtype of a float tensor. Beside i32 whole numbers are i32
// (ValueError where it does not hold them), others make it f32; u8 is i32 beside whole numbers.
struct Scalar {
  template <std::integral T>
  Scalar(T number) : value(static_cast<double>(number)), is_whole(true) {}  // NOLINT: implicit
  template <std::floating_point T>
  Scalar(T number) : value(static_cast<double>(number)), is_whole(false) {}  // NOLINT: implicit

  double value;   // exact for integers up to 2^53
  bool is_whole;  // its type is
};

// Elementwise, broadcast, recorded: add, sub, mul, div and affine of ops/ops.h. Two tensors
// are promoted as PyTorch does, but u8 counts as i32, as in C++: nothing wraps round at 256.
Tensor operator+(Tensor a, Tensor b);
Tensor operator+(Tensor a, Scalar b);
Tensor operator+(Scalar a, Tensor b);
Tensor operator-(Tensor a, Tensor b);
Tensor operator-(Tensor a, Scalar b);
Tensor operator-(Scalar a, Tensor b);
Tensor operator*(Tensor a, Tensor b);
Tensor operator*(Tensor a, Scalar b);
Tensor operator*(Scalar a, Tensor b);
// i32 by i32 or a whole number is i32, truncated toward zero (ValueError: by the number 0).
Tensor operator/(Tensor a, Tensor b);
Tensor operator/(Tensor a, Scalar b);
Tensor operator/(Scalar a, Tensor b);
// The negative; of u8 it is i32.
Tensor operator-(Tensor a);

// a = a + b: the handle becomes the result, which is recorded like any other. The storage is
// written over where nobody else needs it; other handles and views of the old value keep that,
// unlike in PyTorch. Shape and dtype of `a` stay (ShapeError, DTypeError where they cannot; f16 +=
// f32 is computed in f32). A parameter, a buffer or another leaf that requires a gradient throws
// AutogradError: its owner holds a handle of its own, so that is changed with copy_.
Tensor& operator+=(Tensor& a, Tensor b);
Tensor& operator+=(Tensor& a, Scalar b);
Tensor& operator-=(Tensor& a, Tensor b);
Tensor& operator-=(Tensor& a, Scalar b);
Tensor& operator*=(Tensor& a, Tensor b);
Tensor& operator*=(Tensor& a, Scalar b);
Tensor& operator/=(Tensor& a, Tensor b);
Tensor& operator/=(Tensor& a, Scalar b);

// What comparisons give: u8 0 or 1 per element, no gradient. Not a condition: `if (a < b)` would
// ask whether the result is defined, so it does not compile. Ask `(a < b).item() != 0`.
class Comparison : public Tensor {
 public:
  explicit Comparison(Tensor result) : Tensor(std::move(result)) {}
  explicit operator bool() const = delete;
};

// Elementwise and broadcast. ValueError for a whole number outside of i32 beside an i32 tensor.
Comparison operator==(const Tensor& a, const Tensor& b);
Comparison operator==(const Tensor& a, Scalar b);
Comparison operator==(Scalar a, const Tensor& b);
Comparison operator!=(const Tensor& a, const Tensor& b);
Comparison operator!=(const Tensor& a, Scalar b);
Comparison operator!=(Scalar a, const Tensor& b);
Comparison operator<(const Tensor& a, const Tensor& b);
Comparison operator<(const Tensor& a, Scalar b);
Comparison operator<(Scalar a, const Tensor& b);
Comparison operator<=(const Tensor& a, const Tensor& b);
Comparison operator<=(const Tensor& a, Scalar b);
Comparison operator<=(Scalar a, const Tensor& b);
Comparison operator>(const Tensor& a, const Tensor& b);
Comparison operator>(const Tensor& a, Scalar b);
Comparison operator>(Scalar a, const Tensor& b);
Comparison operator>=(const Tensor& a, const Tensor& b);
Comparison operator>=(const Tensor& a, Scalar b);
Comparison operator>=(Scalar a, const Tensor& b);

}  // namespace rw
