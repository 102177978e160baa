#include "ops/elementwise/curvature.h"

#include "ops/detail.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

// sigmoid(x), its rest to 1, and its slope.
struct Logistic {
  Tensor p, q, slope;
  explicit Logistic(const Tensor& x) : p(sigmoid(x)), q(sigmoid(neg(x))), slope(p * q) {}
};

// x times the density of a normal distribution, twice integrated, is gelu.
Tensor gelu_curvature(const Tensor& x) {
  const Tensor squares = square(x);
  return exp(squares * -0.5f) * 0.3989422804f * (2.0f - squares);
}

// x sigmoid(v), with v = c (x + 0.044715 x^3).
Tensor gelu_tanh_curvature(const Tensor& x) {
  constexpr float c = 1.5957691216f, cubes = 0.044715f;
  const Tensor squares = square(x) * cubes, rise = (squares * 3.0f + 1.0f) * c;
  const Logistic v((squares + 1.0f) * x * c);
  const Tensor of_rise = squares * (6 * c);  // x times the derivative of `rise`
  return v.slope * (rise * (x * rise * (v.q - v.p) + 2.0f) + of_rise);
}

// x tanh(softplus(x)); the slope of softplus is the sigmoid.
Tensor mish_curvature(const Tensor& x) {
  const Logistic of(x);
  const Tensor t = tanh(softplus(x));
  return (1.0f - square(t)) * of.p * (x * (of.q - t * of.p * 2.0f) + 2.0f);
}

// `below` where x is not positive, else 0.
Tensor where_negative(const Tensor& x, const Tensor& below) {
  return masked_fill(below, x > 0, 0);
}

}  // namespace

Tensor detail::curvature(uint32_t row, const Tensor& s, float a, float) {
  switch (row) {
    case unary_neg:
    case unary_abs:
    case unary_relu:
    case unary_affine:
    case unary_clamp:
    case unary_leaky_relu:
    case unary_sign:
    case unary_floor:
    case unary_ceil:
    case unary_hardtanh:
    case unary_round:
    case unary_trunc:
    case unary_hardsigmoid:
      return {};
    case unary_exp:  // s is exp(x), as it is the result for the rows that save that
      return scalar_on(s, 1, DType::f32);
    case unary_log:
      return neg(square(reciprocal(s)));
    case unary_sqrt:
      return square(reciprocal(s)) * -0.5f;
    case unary_rsqrt:
      return square(s) * -1.5f;
    case unary_square:
      return scalar_on(s, 2, DType::f32);
    case unary_sigmoid: {
      const Logistic of(s);
      return of.slope * (of.q - of.p);
    }
    case unary_tanh: {
      const Tensor y = tanh(s);
      return y * (square(y) - 1.0f) * 2.0f;
    }
    case unary_silu: {
      const Logistic of(s);
      return of.slope * (s * (of.q - of.p) + 2.0f);
    }
    case unary_gelu:
      return gelu_curvature(s);
    case unary_gelu_tanh:
      return gelu_tanh_curvature(s);
    case unary_pow_scalar:
      return a == 0 || a == 1 ? Tensor() : pow(s, a - 2) * a * (a - 1);
    case unary_elu:
      return where_negative(s, exp(s) * a);
    case unary_softplus:
      return Logistic(s).slope;
    case unary_sin:
      return neg(sin(s));
    case unary_cos:
      return neg(cos(s));
    case unary_erf:
      return exp(neg(square(s))) * s * -2.2567583342f;
    case unary_reciprocal:
      return s * -2.0f;
    case unary_log1p:
      return neg(square(reciprocal(s + 1.0f)));
    case unary_expm1:
      return exp(s);
    case unary_tan: {
      const Tensor y = tan(s);
      return y * (square(y) + 1.0f) * 2.0f;
    }
    case unary_erfinv: {
      const Tensor y = erfinv(s);
      return exp(square(y) * 2.0f) * y * 1.5707963268f;
    }
    case unary_softsign: {
      const Tensor size = abs(s) + 1.0f;
      return sign(s) * -2.0f / (square(size) * size);
    }
    case unary_hardswish:
      return cast(abs(s) < 3, DType::f32) / 3.0f;
    case unary_mish:
      return mish_curvature(s);
    case unary_selu:
      return where_negative(s, exp(s) * 1.7580993409f);
    case unary_log_sigmoid:
      return neg(Logistic(s).slope);
    default:
      fail<AutogradError>("grad", "row {} of elementwise.def needs a second derivative here", row);
  }
}

}  // namespace rw
