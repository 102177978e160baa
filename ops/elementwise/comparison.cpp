// Comparisons (rows of shaders/elementwise.def), and what chooses by truth values.
#include "ops/detail.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

// ---- compare -----------------------------------------------------------------------------------
std::vector<Tensor> compare_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const Shape shape = broadcast(inputs[0].shape(), inputs[1].shape(), op_or("user"));
  Tensor y = empty_on(inputs[0], shape, DType::u8);
  launch_binary("compare", std::any_cast<uint32_t>(attrs), inputs[0], inputs[1], y);
  return one(std::move(y));
}

const Op compare_ops[] = {
#define COMPARE(id, name, forward) {#name, compare_forward},
#include "shaders/elementwise.def"
};

Tensor compare(uint32_t id, Tensor a, Tensor b) {
  promote(a, b);
  return apply1(compare_ops[id], id, std::move(a), std::move(b));
}

// ---- where -------------------------------------------------------------------------------------
std::vector<Tensor> where_forward(const std::any&, std::span<Tensor> inputs) {
  const Tensor &c = inputs[0], &a = inputs[1], &b = inputs[2];
  Shape shape = broadcast(broadcast(a.shape(), b.shape(), "where"), c.shape(), "where");
  Tensor y = empty_on(a, shape, a.dtype());
  Strides strides[] = {broadcast_strides(c.shape(), c.strides(), shape),
                       broadcast_strides(a.shape(), a.strides(), shape),
                       broadcast_strides(b.shape(), b.strides(), shape)};
  collapse(shape, strides);
  kernels::WhereParams params{.n = count32(y.numel(), "where"),
                              .rank = static_cast<uint32_t>(shape.rank())};
  copy_dims(shape, params.shape);
  copy_dims(strides[0], params.c_stride);
  copy_dims(strides[1], params.a_stride);
  copy_dims(strides[2], params.b_stride);
  launch("where", {in(c), in(a), in(b), out(y)}, params, {.threads = {params.n, 1, 1}});
  return one(std::move(y));
}

std::vector<Tensor> where_vjp(Record& r, std::span<Tensor> dy) {
  const Tensor zero = scalar_on(dy[0], 0, dy[0].dtype());
  Tensor da, db;
  if (r.needs_grad(1)) da = sum_to(where(r.input(0), dy[0], zero), r.inputs[1].shape);
  if (r.needs_grad(2)) db = sum_to(where(r.input(0), zero, dy[0]), r.inputs[2].shape);
  return {Tensor(), std::move(da), std::move(db)};
}

const Op where_op = {.name = "where",
                     .forward = where_forward,
                     .vjp = where_vjp,
                     .saves = saves_always<1>,
                     .records_vjp = true};

}  // namespace

#define COMPARE(id, name, forward)                  \
  Tensor name(Tensor a, Tensor b) {                 \
    return compare(id, std::move(a), std::move(b)); \
  }
#include "shaders/elementwise.def"

Tensor logical_not(Tensor x) {
  return x == 0;
}

Tensor where(Tensor condition, Tensor a, Tensor b) {
  check<DTypeError>(condition.dtype() == DType::u8, "where", "the condition must be u8, got {}",
                    condition);
  promote(a, b);
  return apply1(where_op, {}, std::move(condition), std::move(a), std::move(b));
}

Tensor masked_fill(Tensor x, Tensor mask, float value) {
  check<DTypeError>(mask.dtype() == DType::u8, "masked_fill", "the mask must be u8, got {}", mask);
  check<ShapeError>(broadcast(x.shape(), mask.shape(), "masked_fill") == x.shape(), "masked_fill",
                    "the mask must broadcast to x, got x {} and mask {}", x, mask);
  Tensor fill = scalar_on(x, value, x.dtype());
  return where(std::move(mask), std::move(fill), std::move(x));
}

}  // namespace rw
