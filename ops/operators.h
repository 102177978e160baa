// Operators for arithmetic and comparisons of tensors with tensors and numbers.
#pragma once

#include <concepts>
#include <utility>

#include "../core/tensor/tensor.h"

namespace rw {

// A number beside a tensor. It takes the dtype of a float tensor. Beside i32, integers are i32
// (ValueError if they do not fit), and other numbers make the result f32; u8 becomes i32 beside
// integers.
struct Scalar {
  template <std::integral T>
  Scalar(T number) : value(static_cast<double>(number)), is_whole(true) {}  // NOLINT: implicit
  template <std::floating_point T>
  Scalar(T number) : value(static_cast<double>(number)), is_whole(false) {}  // NOLINT: implicit

  double value;   // exact for integers up to 2^53
  bool is_whole;  // its type is
};

// Elementwise, broadcast and recorded: add, sub, mul, div and affine of ops/ops.h. Two tensors are
// promoted as in PyTorch, except that u8 counts as i32, as in C++: nothing wraps around at 256.
Tensor operator+(Tensor a, Tensor b);
Tensor operator+(Tensor a, Scalar b);
Tensor operator+(Scalar a, Tensor b);
Tensor operator-(Tensor a, Tensor b);
Tensor operator-(Tensor a, Scalar b);
Tensor operator-(Scalar a, Tensor b);
Tensor operator*(Tensor a, Tensor b);
Tensor operator*(Tensor a, Scalar b);
Tensor operator*(Scalar a, Tensor b);
// i32 divided by i32 or by an integer is i32, truncated toward zero (ValueError for a division by
// the number 0).
Tensor operator/(Tensor a, Tensor b);
Tensor operator/(Tensor a, Scalar b);
Tensor operator/(Scalar a, Tensor b);
// The negative; for u8 it is i32.
Tensor operator-(Tensor a);

// a = a + b: the handle becomes the result, which is recorded like any other. The storage is
// overwritten if nobody else needs it; other handles and views keep the old value, unlike in
// PyTorch. `a` keeps its shape and dtype (ShapeError, DTypeError if it cannot; f16 += f32 is
// computed in f32). A parameter, a buffer or another leaf that requires a gradient throws
// AutogradError, because its owner holds a handle of its own: change it with copy_.
Tensor& operator+=(Tensor& a, Tensor b);
Tensor& operator+=(Tensor& a, Scalar b);
Tensor& operator-=(Tensor& a, Tensor b);
Tensor& operator-=(Tensor& a, Scalar b);
Tensor& operator*=(Tensor& a, Tensor b);
Tensor& operator*=(Tensor& a, Scalar b);
Tensor& operator/=(Tensor& a, Tensor b);
Tensor& operator/=(Tensor& a, Scalar b);

// The result of a comparison: u8 0 or 1 per element, without a gradient. It is not a condition: `if
// (a < b)` would ask whether the result is defined, so it does not compile. Write `(a < b).item()
// != 0`.
class Comparison : public Tensor {
 public:
  explicit Comparison(Tensor result) : Tensor(std::move(result)) {}
  explicit operator bool() const = delete;
};

// Elementwise and broadcast. ValueError for an integer that i32 cannot hold, beside an i32 tensor.
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
