// Matrix products.
#include "ops/matmul.h"

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"

namespace rw {

using namespace detail;

namespace {

// Tells whether one stride of the last two axes is 1, or may be taken as 1.
bool has_unit_stride(const Tensor& t) {
  const int r = t.rank() - 2, c = t.rank() - 1;
  return t.strides()[c] == 1 || t.strides()[r] == 1 || t.shape()[c] == 1 || t.shape()[r] == 1;
}

// The same matrices with rows and columns exchanged, as a view that no record sees.
Tensor transposed(const Tensor& t) {
  Shape shape = t.shape();
  Strides strides = t.strides();
  const int r = t.rank() - 2, c = t.rank() - 1;
  std::swap(shape[r], shape[c]);
  std::swap(strides[r], strides[c]);
  return make_view(t, shape, strides, t.impl().offset);
}

struct RowCol {
  uint32_t row, col;
};

// Element strides of the last two axes; an axis of size 1 may take any stride, so it takes 1.
RowCol row_col(const Tensor& t) {
  const int r = t.rank() - 2, c = t.rank() - 1;
  auto row = static_cast<uint32_t>(t.strides()[r]), col = static_cast<uint32_t>(t.strides()[c]);
  if (row != 1 && col != 1) (t.shape()[c] == 1 ? col : row) = 1;
  return {row, col};
}

Shape leading(const Shape& shape) {
  return Shape(std::span(shape.begin(), shape.end() - 2));
}

// Writes how to step through the matrices of a batch, or returns false if there are more than two
// independent steps.
bool set_batch(kernels::MatmulParams& params, const Tensor& a, const Tensor& b, const Tensor& c) {
  Shape dims = leading(c.shape());
  const auto steps_of = [&](const Tensor& t) {
    return broadcast_strides(leading(t.shape()), leading(t.strides()), dims);
  };
  Strides steps[] = {steps_of(a), steps_of(b), leading(c.strides())};
  collapse(dims, steps);
  for (int i = 0; i < dims.rank() && dims.rank() <= 2; ++i) {
    const int at = 2 - dims.rank() + i;
    params.batch[at] = count32(dims[i], "matmul");
    params.a_batch[at] = count32(steps[0][i], "matmul");
    params.b_batch[at] = count32(steps[1][i], "matmul");
    params.c_batch[at] = count32(steps[2][i], "matmul");
  }
  return dims.rank() <= 2;
}

}  // namespace

Tensor detail::gemm(const Tensor& a, const Tensor& b, DType dtype, const Tensor& added) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const bool is_batch = a.rank() > 2 || b.rank() > 2;
  Shape result = is_batch ? broadcast(leading(a.shape()), leading(b.shape()), "matmul") : Shape();
  result.push_back(m);
  result.push_back(n);
  if (k == 0) return added ? added : full(result, 0, dtype, a.device().shared_from_this());
  Tensor c = added ? added : empty_on(a, result, dtype);
  gemm_into(a, b, c, added.defined());
  return c;
}

void detail::gemm_into(const Tensor& a, const Tensor& b, const Tensor& c, bool adds) {
  if (!has_unit_stride(a)) return gemm_into(contiguous(a), b, c, adds);
  if (!has_unit_stride(b)) return gemm_into(a, contiguous(b), c, adds);
  if (c.numel() == 0) return;
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const Shape batch = leading(c.shape());
  const auto [a_row, a_col] = row_col(a);
  const auto [b_row, b_col] = row_col(b);
  kernels::MatmulParams params{.m = count32(m, "matmul"),
                               .n = count32(n, "matmul"),
                               .k = count32(k, "matmul"),
                               .batch = {1, 1},
                               .a_row = a_row,
                               .a_col = a_col,
                               .b_row = b_row,
                               .b_col = b_col,
                               .c_row = count32(c.strides()[c.rank() - 2], "matmul"),
                               .alpha = 1,
                               .beta = adds ? 1.0f : 0.0f};
  if (batch.rank() > 0 && !set_batch(params, a, b, c)) {  // makes the steps even
    const auto full_batch = [&](const Tensor& t) {
      Shape shape = batch;
      shape.push_back(t.size(-2));
      shape.push_back(t.size(-1));
      return contiguous(expand(t, shape));
    };
    return gemm_into(full_batch(a), full_batch(b), c, adds);
  }
  count32(c.numel(), "matmul");  // kernels count its elements
  const double flops = 2.0 * static_cast<double>(c.numel()) * static_cast<double>(k);
  rw::launch("matmul", {in(a), in(b), adds ? inout(c) : out(c)}, params,
             {.threads = {params.n, params.m, params.batch[0] * params.batch[1]}, .flops = flops});
}

// The first factor's own gradient comes last, when nobody reads the factor any more.
Saves detail::product_saves(const std::any&, uint32_t needs) {
  const uint32_t first = needs & 2 ? 1u : 0u;
  return {.inputs = (needs & 1 ? 2u : 0u) | first, .taken = first};
}

void detail::check_same_float(const Tensor& a, const Tensor& b, const char* op) {
  check<DTypeError>(is_float(a.dtype()) && a.dtype() == b.dtype(), op,
                    "both must be float of one dtype, got {} and {}; cast one", a, b);
}

namespace {

std::vector<Tensor> matmul_forward(const std::any&, std::span<Tensor> inputs) {
  return one(gemm(inputs[0], inputs[1], inputs[0].dtype()));
}

std::vector<Tensor> matmul_vjp(Record& r, std::span<Tensor> dy) {
  Tensor da, db;
  // Products that are summed, since the input was broadcast, are not rounded before.
  const auto product = [&](int input, const Tensor& a, const Tensor& b) {
    const Shape& shape = r.inputs[input].shape;
    const bool is_whole = leading(shape) == leading(dy[0].shape());
    return sum_to(gemm(a, b, is_whole ? dy[0].dtype() : DType::f32), shape);
  };
  if (r.needs_grad(1)) db = product(1, transposed(r.take_input(0)), dy[0]);
  if (r.needs_grad(0)) da = product(0, dy[0], transposed(r.input(1)));
  return {std::move(da), std::move(db)};
}

const Op matmul_op = {.name = "matmul",
                      .forward = matmul_forward,
                      .vjp = matmul_vjp,
                      .saves = product_saves,
                      .is_heavy = true,
                      .saves_8_bits = true,
                      .second = bilinear_second};

// ---- linear: x [rows, in] @ weight [out, in]^T; the weight's gradient is f32 --------------------
std::vector<Tensor> linear_forward(const std::any&, std::span<Tensor> inputs) {
  return one(gemm(inputs[0], transposed(inputs[1]), inputs[0].dtype()));
}

std::vector<Tensor> linear_vjp(Record& r, std::span<Tensor> dy) {
  Tensor dx, dw;
  if (r.needs_grad(1))
    dw = gemm(transposed(dy[0]), r.take_input(0), DType::f32, r.gradient_so_far(1));
  if (r.needs_grad(0)) dx = gemm(dy[0], r.input(1), dy[0].dtype());
  return {std::move(dx), std::move(dw)};
}

const Op linear_op = {.name = "linear",
                      .forward = linear_forward,
                      .vjp = linear_vjp,
                      .saves = product_saves,
                      .is_heavy = true,
                      .saves_8_bits = true,
                      .second = bilinear_second};

}  // namespace

Tensor matmul(Tensor a, Tensor b) {
  const AutocastInputs autocast("matmul", {&a, &b});
  const bool is_row = a.rank() == 1, is_column = b.rank() == 1;
  check<ShapeError>(
      a.rank() > 0 && b.rank() > 0 && a.size(-1) == b.size(is_column ? -1 : -2), "matmul",
      "the last axis of a must match the last but one of b, or b's only one, got {} and {}", a, b);
  check_same_float(a, b, "matmul");
  if (is_row) a = unsqueeze(std::move(a), 0);
  if (is_column) b = unsqueeze(std::move(b), 1);
  Tensor y;
  if (a.rank() > 2 && b.rank() == 2) {  // one large product instead of a batch
    Shape result = a.shape();
    result[a.rank() - 1] = b.size(-1);
    y = apply1(matmul_op, {}, flatten(std::move(a), 0, -2), std::move(b));
    y = reshape(std::move(y), result);
  } else {
    y = apply1(matmul_op, {}, std::move(a), std::move(b));
  }
  if (is_column) y = squeeze(std::move(y), -1);
  return is_row ? squeeze(std::move(y), is_column ? -1 : -2) : y;
}

Tensor linear(Tensor x, Tensor weight, Tensor bias) {
  const AutocastInputs autocast("linear", {&x, &weight, &bias});
  check<ShapeError>(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.shape()[1],
                    "linear", "x [..., in] and weight [out, in] must agree, got {} and {}", x,
                    weight);
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.shape()[0]}, "linear",
                    "bias must be [out], got {} and weight {}", bias, weight);
  check_same_float(x, weight, "linear");
  Shape result = x.shape();
  result[x.rank() - 1] = weight.shape()[0];
  int64_t rows = 1;  // also where they are empty
  for (int axis = 0; axis < x.rank() - 1; ++axis) rows *= x.shape()[axis];
  x = reshape(std::move(x), Shape{rows, weight.shape()[1]});
  Tensor y = apply1(linear_op, {}, std::move(x), std::move(weight));
  if (bias.defined()) y = add(std::move(y), std::move(bias));
  return reshape(std::move(y), result);
}

}  // namespace rw
