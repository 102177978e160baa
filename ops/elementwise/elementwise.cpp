// Elementwise ops: the rows of shaders/elementwise.def that compute numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/elementwise/curvature.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

// ---- unary -------------------------------------------------------------------------------------
struct UnaryAttrs {
  uint32_t id;
  float a, b;
};

enum SaveKind { SAVE_NONE, SAVE_X, SAVE_Y };
constexpr SaveKind unary_saves[] = {
#define UNARY(id, name, forward, grad, saves, lo, hi) saves,
#include "shaders/elementwise.def"
};

std::vector<Tensor> unary_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [id, a, b] = std::any_cast<const UnaryAttrs&>(attrs);
  Tensor& x = inputs[0];
  const Tensor y = reuse_or_empty(x, x.shape(), x.dtype());
  const bool flat = is_flat(x);
  kernels::UnaryParams params{.n = count32(x.numel(), "unary"), .a = a, .b = b};
  if (!flat) {
    Shape shape = x.shape();
    Strides strides = x.strides();
    collapse(shape, {&strides, 1});
    params.rank = static_cast<uint32_t>(shape.rank());
    copy_dims(shape, params.shape);
    copy_dims(strides, params.x_stride);
  }
  launch("unary", {in(x), out(y)}, params,
         {.threads = {flat ? flat_threads(params.n) : params.n, 1, 1}, .variant = {id, flat}});
  return one(y);
}

Tensor times_slope(uint32_t row, const Tensor& s, Tensor dy, float a, float b);

std::vector<Tensor> unary_vjp(Record& record, std::span<Tensor> dy) {
  const auto& [id, a, b] = record.attributes<UnaryAttrs>();
  const Tensor s = unary_saves[id] == SAVE_X   ? record.input(0)
                   : unary_saves[id] == SAVE_Y ? record.output(0)
                                               : Tensor();
  return one(times_slope(id, s, std::exchange(dy[0], {}), a, b));
}

// The gradient is dy times the slope, so that of dy is g times it, and that of s the curvature.
void unary_second(SecondOrder& s) {
  const auto& [id, a, b] = s.attributes<UnaryAttrs>();
  if (s.needs_dy()) s.give_dy(s.again(0, {}, {s.g()}));
  const bool is_x = unary_saves[id] == SAVE_X;
  if (!(is_x ? s.needs_input(0) : s.needs_output(0))) return;
  const Tensor bend = curvature(id, wide(is_x ? s.input(0) : s.output(0)), a, b);
  if (!bend) return;
  Tensor gradient = wide(s.dy()) * wide(s.g()) * bend;
  if (is_x)
    s.give_input(0, std::move(gradient));
  else
    s.give_output(0, std::move(gradient));
}

constexpr bool saves_8_bits(std::string_view op) {
#define SAVES_8_BITS(name) \
  if (op == #name) return true;
#include "shaders/elementwise.def"
  return false;
}

const Op unary_ops[] = {
#define UNARY(id, op, forward_, grad, saved, lo, hi)                         \
  {.name = #op,                                                              \
   .forward = unary_forward,                                                 \
   .vjp = unary_vjp,                                                         \
   .saves =                                                                  \
       [](const std::any&, uint32_t) {                                       \
         return Saves{saved == SAVE_X ? 1u : 0u, saved == SAVE_Y ? 1u : 0u}; \
       },                                                                    \
   .has_zero_gradient = std::string_view(#grad) == "0.0f * dy",              \
   .saves_8_bits = saves_8_bits(#op),                                        \
   .second = unary_second},
#include "shaders/elementwise.def"
};

// Tables are indexed by id, so row i must have id i.
constexpr bool counts_up(std::initializer_list<uint32_t> ids) {
  uint32_t next = 0;
  for (const uint32_t id : ids)
    if (id != next++) return false;
  return true;
}
static_assert(counts_up({
#define UNARY(id, name, forward, grad, saves, lo, hi) id,
#include "shaders/elementwise.def"
}));
static_assert(counts_up({
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) id,
#include "shaders/elementwise.def"
}));

constexpr float least_i32 = -2147483648.0f, most_i32 = 2147483520.0f;  // floats that i32 holds

Tensor whole_number(const Tensor& x, float v) {
  return scalar_on(x, std::clamp(v, least_i32, most_i32), DType::i32);
}

Tensor whole_clamp(const Tensor& x, float low, float high) {
  Tensor y = low > least_i32 ? maximum(x, whole_number(x, std::ceil(low))) : x;
  return high <= most_i32 ? minimum(std::move(y), whole_number(x, std::floor(high))) : y;
}

// The function of i32 of a row that maps whole numbers to whole numbers.
Tensor whole_unary(uint32_t id, const Tensor& x, float a, float b) {
  switch (id) {
#define WHOLE(name, y) \
  case unary_##name:   \
    return y;
#include "shaders/elementwise.def"
    default:
      return {};
  }
}

constexpr bool keeps_whole_numbers(uint32_t id) {
  switch (id) {
#define WHOLE(name, y) case unary_##name:
#include "shaders/elementwise.def"
    return true;
    default:
      return false;
  }
}

Tensor unary(uint32_t id, Tensor x, float a = 0, float b = 0) {
  const AutocastInputs autocast(unary_ops[id].name, {&x});
  if (!is_float(x.dtype())) {
    if (keeps_whole_numbers(id)) return whole_unary(id, cast(x, DType::i32), a, b);
    x = cast(std::move(x), DType::f32);
  }
  return apply1(unary_ops[id], UnaryAttrs{id, a, b}, std::move(x));
}

// ---- binary ------------------------------------------------------------------------------------
struct BinaryAttrs {
  uint32_t id;
};

enum BinaryId : uint32_t {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) binary_##name = id,
#include "shaders/elementwise.def"
};

std::vector<Tensor> binary_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const uint32_t id = std::any_cast<const BinaryAttrs&>(attrs).id;
  Tensor &a = inputs[0], &b = inputs[1];
  const Shape shape = broadcast(a.shape(), b.shape(), op_or("user"));
  const bool takes_a = a.shape() == shape && (is_sole_owner(a) || !(b.shape() == shape));
  Tensor y = reuse_or_empty(takes_a ? a : b, shape, a.dtype());
  const bool commutes = id == binary_add || id == binary_mul || id == binary_maximum ||
                        id == binary_minimum || id == binary_logaddexp;
  const bool swap = commutes && !(a.shape() == shape) && b.shape() == shape;
  launch_binary("binary", id, swap ? b : a, swap ? a : b, y);
  return one(std::move(y));
}

// The values that a gradient reads: the inputs x and y, the output z.
enum Reads : uint32_t { READS_NONE = 0, READS_X = 1, READS_Y = 2, READS_BOTH = 3, READS_Z = 4 };

// 1 where a wins, 1/2 on ties, 0 elsewhere, in dy's dtype.
Tensor share_of(const Tensor& a, const Tensor& b, DType dtype, bool greater_wins) {
  const Tensor wins = greater_wins ? greater(a, b) : less(a, b);
  return cast(wins, dtype) + cast(equal(a, b), dtype) * 0.5f;
}

// b a^(b - 1), and 0 where b is 0, whatever a is. Its own gradient in b is not 0 there.
Tensor pow_slope(const Tensor& a, const Tensor& b) {
  Tensor nothing = b == 0;
  if (grad_enabled()) nothing = logical_and(std::move(nothing), logical_not(abs(a) > 0));
  return masked_fill(b * pow(a, b - 1.0f), std::move(nothing), 0);
}

// a^b log a, and 0 where a is 0 and b is not negative.
Tensor pow_growth(const Tensor& a, const Tensor& b) {
  return masked_fill(pow(a, b) * log(a), logical_and(a == 0, b >= 0), 0);
}

// The share of exp(a) in exp(a) + exp(b): half of it where both are equal, and nothing of nothing.
Tensor exp_share(const Tensor& a, const Tensor& b) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Tensor apart = a - b, are_infinite = logical_and(a == b, apart != apart);
  return masked_fill(sigmoid(masked_fill(apart, are_infinite, 0)), a == -infinity, 0);
}

std::vector<Tensor> binary_vjp(Record& r, std::span<Tensor> dys) {
  const uint32_t id = r.attributes<BinaryAttrs>().id;
  const bool need_a = r.needs_grad(0), need_b = r.needs_grad(1);
  const Tensor dy = std::exchange(dys[0], {});
  // A product that is summed, since the input was broadcast, is not rounded before.
  const auto factor = [&](int input, const Tensor& t) {
    return r.inputs[input].shape == dy.shape() ? t : wide(t);
  };
  const auto x = [&]() -> const Tensor& { return r.input(0); };
  const auto y = [&]() -> const Tensor& { return r.input(1); };
  const auto z = [&]() -> const Tensor& { return r.output(0); };
  Tensor da, db;
  switch (id) {
#define BINARY_GRAD(name, reads_x, grad_x, reads_y, grad_y) \
  case binary_##name:                                       \
    if (need_a) da = grad_x;                                \
    if (need_b) db = grad_y;                                \
    break;
#include "shaders/elementwise.def"
  }
  if (da) da = sum_to(da, r.inputs[0].shape);
  if (db) db = sum_to(db, r.inputs[1].shape);
  return {std::move(da), std::move(db)};
}

Saves binary_saves(const std::any& attrs, uint32_t needs) {
  constexpr uint32_t reads[][2] = {
#define BINARY_GRAD(name, reads_x, grad_x, reads_y, grad_y) {reads_x, reads_y},
#include "shaders/elementwise.def"
  };
  const auto& [of_x, of_y] = reads[std::any_cast<const BinaryAttrs&>(attrs).id];
  const uint32_t all = (needs & 1 ? of_x : 0) | (needs & 2 ? of_y : 0);
  return {all & READS_BOTH, all & READS_Z ? 1u : 0u};
}

const Op binary_ops[] = {
#define BINARY(id, op, forward_, lo, hi, lo_y, hi_y) \
  {.name = #op,                                      \
   .forward = binary_forward,                        \
   .vjp = binary_vjp,                                \
   .saves = binary_saves,                            \
   .saves_8_bits = saves_8_bits(#op),                \
   .records_vjp = true},
#include "shaders/elementwise.def"
};

Tensor binary(uint32_t id, Tensor a, Tensor b) {
  const AutocastInputs autocast(binary_ops[id].name, {&a, &b});
  promote(a, b);
  if (a.dtype() == DType::u8)
    a = cast(std::move(a), DType::i32), b = cast(std::move(b), DType::i32);
  return apply1(binary_ops[id], BinaryAttrs{id}, std::move(a), std::move(b));
}

// Makes the gradient by its kernel, without a record.
Tensor times_slope(uint32_t row, const Tensor& s, Tensor dy, float a, float b) {
  dy = contiguous(std::move(dy));
  const Tensor saved = s ? contiguous(s) : Tensor(),
               dx = reuse_or_empty(dy, dy.shape(), dy.dtype());
  rw::launch("unary_grad", {in(saved ? saved : dy), in(dy), out(dx)},
             kernels::UnaryGradParams{.n = count32(dy.numel(), "unary"), .a = a, .b = b},
             {.threads = {flat_threads(dy.numel()), 1, 1}, .variant = {row, 1}});
  return dx;
}

}  // namespace

Tensor detail::unary_gradient(uint32_t row, const Tensor& s, Tensor dy, float a, float b) {
  return grad_enabled() ? recorded_gradient(unary_ops[row], UnaryAttrs{row, a, b}, s, dy)
                        : times_slope(row, s, std::move(dy), a, b);
}

// The public functions of the rows without parameters.
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  Tensor name(Tensor x) {                             \
    return unary(unary_##name, std::move(x));         \
  }
#define UNARY_AB(id, name, forward, grad, saves, lo, hi)
#include "shaders/elementwise.def"

Tensor affine(Tensor x, float a, float b) {
  return unary(unary_affine, std::move(x), a, b);
}
Tensor clamp(Tensor x, float low, float high) {
  return unary(unary_clamp, std::move(x), low, high);
}
Tensor pow(Tensor x, float exponent) {
  return unary(unary_pow_scalar, std::move(x), exponent);
}
Tensor leaky_relu(Tensor x, float slope) {
  return unary(unary_leaky_relu, std::move(x), slope);
}
Tensor elu(Tensor x, float alpha) {
  return unary(unary_elu, std::move(x), alpha);
}

// The public functions of the rows whose operands may be of any dtype.
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y)         \
  Tensor name(Tensor a, Tensor b) {                           \
    return binary(binary_##name, std::move(a), std::move(b)); \
  }
#define BINARY_FLOAT(id, name, forward, lo, hi, lo_y, hi_y)
#include "shaders/elementwise.def"

Tensor pow(float base, Tensor exponent) {
  check_float(exponent, "pow");
  const DType dtype = exponent.dtype();
  Tensor a = scalar_on(exponent, base, DType::f32);
  return cast(pow(std::move(a), wide(std::move(exponent))), dtype);
}
Tensor logaddexp(Tensor a, Tensor b) {
  promote(a, b);
  check_float(a, "logaddexp");
  return binary(binary_logaddexp, std::move(a), std::move(b));
}

void promote(Tensor& a, Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  const auto order = [](const Tensor& t) {
    return t.dtype() == DType::u8 ? 0 : t.dtype() == DType::i32 ? 1 : is_half(t.dtype()) ? 2 : 3;
  };
  if (order(a) == order(b))  // f16 and bf16: neither holds the other
    a = cast(std::move(a), DType::f32);
  Tensor& lower = order(a) < order(b) ? a : b;
  lower = cast(std::move(lower), (&lower == &a ? b : a).dtype());
}

}  // namespace rw
