// The operators of ops/operators.h: the ops of ops/ops.h, with numbers as operands.
#include "ops/operators.h"

#include <array>
#include <cmath>
#include <limits>

#include "ops/detail.h"

namespace rw {

using namespace detail;

namespace {

using Binary = Tensor (*)(Tensor, Tensor);

bool fits_i32(Scalar s) {
  return s.value >= std::numeric_limits<int32_t>::min() &&
         s.value <= std::numeric_limits<int32_t>::max();
}

// The number as a tensor of one element for an op with t: i32 is exact, u8 and floats are rounded
// to their dtype.
Tensor element(const Tensor& t, Scalar s, const char* op) {
  if (t.dtype() != DType::i32) return scalar_on(t, static_cast<float>(s.value), t.dtype());
  check(fits_i32(s), op, "beside {} a number must fit i32, got {}", t, s.value);
  Tensor one_element = empty_on(t, {}, DType::i32);
  launch("fill", {out(one_element)},
         kernels::FillParams{.n = 1, .bits = static_cast<uint32_t>(static_cast<int32_t>(s.value))},
         {.threads = {1, 1, 1}});
  return one_element;
}

// Casts t to the dtype that it has beside the number.
Tensor beside(Tensor t, Scalar s) {
  if (is_float(t.dtype())) return t;
  return cast(std::move(t), s.is_whole ? DType::i32 : DType::f32);
}

float number(Scalar s) {
  return static_cast<float>(s.value);
}

// a op b for whole numbers.
Tensor whole(Binary op, const char* name, Tensor a, Scalar b) {
  Tensor b_element = element(a, b, name);
  return op(std::move(a), std::move(b_element));
}

Tensor whole(Binary op, const char* name, Scalar a, Tensor b) {
  Tensor a_element = element(b, a, name);
  return op(std::move(a_element), std::move(b));
}

Comparison compare(Binary op, const char* name, const Tensor& a, Scalar b) {
  const bool is_byte = a.dtype() == DType::u8 && b.is_whole && b.value >= 0 && b.value <= 255;
  const Tensor x = is_byte ? a : beside(a, b);
  return Comparison(op(x, element(x, b, name)));
}

void check_target(const Tensor& a, const char* op) {
  const TensorImpl& impl = a.impl();
  const bool is_owned = impl.storage->purpose() == Purpose::parameter && a.is_leaf();
  if (is_owned || (a.is_leaf() && a.requires_grad()))
    fail<AutogradError>(
        op,
        "would make this handle of {} another tensor, which its module and "
        "optimizer would not see; change it with x.copy_(x + y), or name the result",
        impl.name.empty() ? a.str() : fmt::format("'{}'", impl.name));
}

// An op that gets a sole owner overwrites its storage (reuse_or_empty) and allocates nothing. Other
// ops get a copy of the handle, so that a failure, such as one of memory, leaves it unchanged.
Tensor& assign(Tensor& a, Tensor b, const char* name, Binary op) {
  check_target(a, name);
  const Shape shape = broadcast(a.shape(), b.shape(), name);
  check<ShapeError>(shape == a.shape(), name, "the result must have the shape of {}, got {}", a, b);
  check<DTypeError>(is_float(a.dtype()) || !is_float(b.dtype()), name,
                    "whole numbers do not hold a float result, got {} and {}; cast one", a, b);
  check<DTypeError>(a.dtype() != DType::u8, name, "needs f32, f16 or i32, got {}; cast it", a);
  check_devices(name, std::array{a, b});  // not named: a second handle would make a shared
  const DType dtype = a.dtype();
  const bool is_product = op == static_cast<Binary>(mul) || op == static_cast<Binary>(div);
  const bool is_saved = is_product && grad_enabled() && (a.requires_grad() || b.requires_grad());
  const bool in_place = dtype == b.dtype() && !is_saved && is_sole_owner(a);
  Tensor old = in_place ? std::move(a) : a;
  a = cast(op(std::move(old), std::move(b)), dtype);
  return a;
}

Tensor& assign(Tensor& a, Scalar b, const char* name, Tensor (*op)(Tensor, Scalar)) {
  check_target(a, name);
  check<DTypeError>(is_float(a.dtype()) || (a.dtype() == DType::i32 && b.is_whole), name,
                    "the result must have the dtype of {}, got the number {}; cast the tensor", a,
                    b.value);
  Tensor old = is_float(a.dtype()) && is_sole_owner(a) ? std::move(a) : a;
  a = op(std::move(old), b);
  return a;
}

}  // namespace

Tensor operator+(Tensor a, Tensor b) {
  return add(std::move(a), std::move(b));
}
Tensor operator-(Tensor a, Tensor b) {
  return sub(std::move(a), std::move(b));
}
Tensor operator*(Tensor a, Tensor b) {
  return mul(std::move(a), std::move(b));
}
Tensor operator/(Tensor a, Tensor b) {
  return div(std::move(a), std::move(b));
}
Tensor operator-(Tensor a) {
  return is_float(a.dtype()) ? neg(std::move(a)) : 0 - std::move(a);
}

Tensor operator+(Tensor a, Scalar b) {
  a = beside(std::move(a), b);
  return is_float(a.dtype()) ? affine(std::move(a), 1, number(b))
                             : whole(add, "+", std::move(a), b);
}

Tensor operator+(Scalar a, Tensor b) {
  return std::move(b) + a;
}

Tensor operator-(Tensor a, Scalar b) {
  a = beside(std::move(a), b);
  return is_float(a.dtype()) ? affine(std::move(a), 1, -number(b))
                             : whole(sub, "-", std::move(a), b);
}

Tensor operator-(Scalar a, Tensor b) {
  b = beside(std::move(b), a);
  return is_float(b.dtype()) ? affine(std::move(b), -1, number(a))
                             : whole(sub, "-", a, std::move(b));
}

Tensor operator*(Tensor a, Scalar b) {
  a = beside(std::move(a), b);
  return is_float(a.dtype()) ? affine(std::move(a), number(b), 0)
                             : whole(mul, "*", std::move(a), b);
}

Tensor operator*(Scalar a, Tensor b) {
  return std::move(b) * a;
}

Tensor operator/(Tensor a, Scalar b) {
  a = beside(std::move(a), b);
  if (is_float(a.dtype())) return affine(std::move(a), 1 / number(b), 0);
  check(b.value != 0, "/", "an i32 tensor must not be divided by 0, got {}", a);
  return whole(div, "/", std::move(a), b);
}

Tensor operator/(Scalar a, Tensor b) {
  b = beside(std::move(b), a);
  const DType dtype = b.dtype();
  if (!is_float(dtype)) return whole(div, "/", a, std::move(b));
  return cast(affine(reciprocal(wide(std::move(b))), number(a), 0), dtype);
}

#define ASSIGN(op, function)                       \
  Tensor& operator op(Tensor& a, Tensor b) {       \
    return assign(a, std::move(b), #op, function); \
  }
ASSIGN(+=, add)
ASSIGN(-=, sub)
ASSIGN(*=, mul)
ASSIGN(/=, div)
#undef ASSIGN

Tensor& operator+=(Tensor& a, Scalar b) {
  return assign(a, b, "+=", operator+);
}
Tensor& operator-=(Tensor& a, Scalar b) {
  return assign(a, b, "-=", operator-);
}
Tensor& operator*=(Tensor& a, Scalar b) {
  return assign(a, b, "*=", operator*);
}
Tensor& operator/=(Tensor& a, Scalar b) {
  return assign(a, b, "/=", operator/);
}

// Comparisons with the number on the left are turned around.
#define COMPARISON(op, name, turned)                         \
  Comparison operator op(const Tensor& a, const Tensor& b) { \
    return Comparison(name(a, b));                           \
  }                                                          \
  Comparison operator op(const Tensor& a, Scalar b) {        \
    return compare(name, #op, a, b);                         \
  }                                                          \
  Comparison operator op(Scalar a, const Tensor& b) {        \
    return compare(turned, #op, b, a);                       \
  }
COMPARISON(==, equal, equal)
COMPARISON(!=, not_equal, not_equal)
COMPARISON(<, less, greater)
COMPARISON(<=, less_equal, greater_equal)
COMPARISON(>, greater, less)
COMPARISON(>=, greater_equal, less_equal)
#undef COMPARISON

}  // namespace rw
