// The common part of the op families.
#pragma once

#include <cmath>
#include <utility>

#include "../core/tensor/launch.h"
#include "autocast.h"
#include "ops.h"

namespace rw::detail {

inline std::vector<Tensor> one(Tensor t) {
  return TensorList(std::move(t));
}

// A new tensor on the same device.
inline Tensor empty_on(const Tensor& like, const Shape& shape, DType dtype) {
  return empty(shape, dtype, like.device());
}

// A new tensor of one element on the same device.
inline Tensor scalar_on(const Tensor& like, float value, DType dtype) {
  return full({}, value, dtype, like.device().shared_from_this());
}

inline void check_float(const Tensor& t, const char* op) {
  check<DTypeError>(is_float(t.dtype()), op, "needs a float tensor, got {}", t);
}

// Returns 16-bit floats as f32. An op that is made of other ops computes in f32 and rounds once, to
// what it returns: nothing is rounded that only the op itself reads, so no count, sum or product on
// the way overflows or loses digits.
inline Tensor wide(Tensor t) {
  if (!is_half(t.dtype())) return t;  // the same handle: whoever takes it may overwrite it
  return cast(std::move(t), DType::f32);
}

// For an op whose gradient reads these inputs and outputs, whatever it is asked for (Op::saves).
template <uint32_t inputs, uint32_t outputs = 0>
Saves saves_always(const std::any&, uint32_t) {
  return {inputs, outputs};
}

// The rows of UNARY.
enum UnaryId : uint32_t {
#define UNARY(id, name, forward, grad, saves, lo, hi) unary_##name = id,
#include "../shaders/elementwise.def"
};

// Returns dy times the slope of a row of UNARY, dense: s is the value that the row saves
// (undefined: none), a and b are its numbers. It overwrites a dy that the caller moves in with its
// last handle. Where ops are recorded it is one, for rows that save their input.
Tensor unary_gradient(uint32_t row, const Tensor& s, Tensor dy, float a = 0, float b = 0);

// Checks a number that is added to a variance or a length, or bounds it.
inline void check_eps(float eps, const char* op) {
  check(eps >= 0 && std::isfinite(eps), op, "eps must be finite and not negative, got {}", eps);
}

// Splits a 64-bit number into kernel parameters.
inline uint32_t low(uint64_t v) {
  return static_cast<uint32_t>(v);
}
inline uint32_t high(uint64_t v) {
  return static_cast<uint32_t>(v >> 32);
}

}  // namespace rw::detail
