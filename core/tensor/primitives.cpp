#include "core/tensor/primitives.h"

#include <bit>

#include "core/base/checked.h"
#include "core/tensor/launch.h"
#include "core/tensor/overlap.h"

namespace rw {

Tensor full(const Shape& shape, float value, DType dtype, const std::shared_ptr<Device>& device) {
  check_sizes(op_or("full"), shape, size_of(dtype));
  Tensor t = empty(shape, dtype, device);
  fill_(t, value);
  return t;
}

void fill_(const Tensor& target, float value) {
  check<ShapeError>(target.is_contiguous(), "fill_",
                    "the target must be contiguous, got strides {}", target.strides());
  const uint32_t bits = is_float(target.dtype()) ? std::bit_cast<uint32_t>(value)
                                                 : static_cast<uint32_t>(to_i32(value));
  launch("fill", {out(target)},
         kernels::FillParams{.n = count32(target.numel(), "fill"), .bits = bits},
         {.threads = {flat_threads(target.numel()), 1, 1}});
}

void multiply_into(const Tensor& a, const Tensor& b, const Tensor& c, float alpha, float beta) {
  const auto u = [](int64_t n) { return count32(n, op_or("matmul")); };
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  launch("matmul", {in(a), in(b), beta != 0 ? inout(c) : out(c)},
         kernels::MatmulParams{.m = u(m),
                               .n = u(n),
                               .k = u(k),
                               .batch = {1, 1},
                               .a_row = u(a.strides()[0]),
                               .a_col = u(a.strides()[1]),
                               .b_row = u(b.strides()[0]),
                               .b_col = u(b.strides()[1]),
                               .c_row = u(n),
                               .alpha = alpha,
                               .beta = beta},
         {.threads = {u(n), u(m), 1}, .flops = 2.0 * double(m) * double(n) * double(k)});
}

void copy_into(const Tensor& source, const Tensor& target) {
  check<ShapeError>(source.shape() == target.shape(), "copy", "shapes must agree, got {} and {}",
                    source, target);
  if (source.numel() == 0) return;  // whose other sizes may be more than kernels can count
  if (overlap_in_part(source, target)) return copy_into(copy_of(source, target.dtype()), target);
  // A kernel sees 16-bit floats of one kind only.
  if (is_half(source.dtype()) && is_half(target.dtype()) && source.dtype() != target.dtype())
    return copy_into(copy_of(source, DType::f32), target);
  Shape shape = source.shape();
  Strides strides[2] = {source.strides(), target.strides()};
  collapse(shape, strides);
  kernels::CopyParams params{.n = count32(source.numel(), "copy"),
                             .rank = static_cast<uint32_t>(shape.rank())};
  copy_dims(shape, params.shape);
  copy_dims(strides[0], params.x_stride);
  copy_dims(strides[1], params.y_stride);
  launch("copy", {in(source), out(target)}, params, {});
}

void accumulate(const Tensor& x, const Tensor& target, float scale) {
  check<ShapeError>(x.shape() == target.shape(), "accumulate", "shapes must agree, got {} and {}",
                    x, target);
  check<DTypeError>(is_float(x.dtype()) && target.dtype() == DType::f32 && target.is_contiguous(),
                    "accumulate", "adds floats to a contiguous f32 tensor, got {} and {}", x,
                    target);
  launch("accumulate", {in(dense(x)), inout(target)},
         kernels::AccumulateParams{.n = count32(x.numel(), "accumulate"), .a = scale},
         {.threads = {flat_threads(x.numel()), 1, 1}, .variant = {1}});
}

namespace {

enum BinaryMode : uint32_t { mode_strided, mode_dense, mode_period, mode_scalar };

// How b is broadcast under a dense a of the output's shape.
BinaryMode mode_of(const Tensor& a, const Tensor& b, const Shape& shape) {
  if (!(a.shape() == shape) || !is_flat(a) || !is_flat(b)) return mode_strided;
  if (b.shape() == shape) return mode_dense;
  if (b.numel() == 1) return mode_scalar;
  int lead = 0;  // b's own leading axes of size 1
  while (lead < b.rank() && b.shape()[lead] == 1) ++lead;
  for (int i = lead; i < b.rank(); ++i)
    if (b.shape()[i] != shape[shape.rank() - b.rank() + i]) return mode_strided;
  return b.numel() >= REWIND_FLAT ? mode_period : mode_strided;
}

enum BinaryId : uint32_t {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) binary_##name = id,
#include "shaders/elementwise.def"
};

}  // namespace

Tensor copy_of(const Tensor& x, DType dtype) {
  Tensor y = empty(x.shape(), dtype, x.device());
  copy_into(x, y);
  return y;
}

Tensor dense(const Tensor& x) {
  if (x.is_contiguous()) return x;
  const OpScope scope("contiguous");
  return copy_of(x, x.dtype());
}

Tensor to_dtype(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const OpScope scope("cast");
  return copy_of(x, dtype);
}

Tensor sum_of(Tensor a, Tensor b) {
  if (a.dtype() != b.dtype()) {
    a = to_dtype(a, DType::f32);
    b = to_dtype(b, DType::f32);
  }
  const OpScope scope("add");
  Tensor y = reuse_or_empty(a, a.shape(), a.dtype());
  launch_binary("binary", binary_add, a, b, y);
  return y;
}

void launch_binary(const char* kernel, uint32_t id, const Tensor& a, const Tensor& b,
                   const Tensor& y) {
  const BinaryMode mode = mode_of(a, b, y.shape());
  kernels::BinaryParams params{.n = count32(y.numel(), kernel),
                               .period = count32(b.numel(), kernel)};
  if (mode == mode_strided) {
    Shape shape = y.shape();
    Strides strides[] = {broadcast_strides(a.shape(), a.strides(), shape),
                         broadcast_strides(b.shape(), b.strides(), shape)};
    collapse(shape, strides);
    params.rank = static_cast<uint32_t>(shape.rank());
    copy_dims(shape, params.shape);
    copy_dims(strides[0], params.a_stride);
    copy_dims(strides[1], params.b_stride);
  }
  launch(kernel, {in(a), in(b), out(y)}, params,
         {.threads = {mode == mode_strided ? params.n : flat_threads(params.n), 1, 1},
          .variant = {id, mode}});
}

}  // namespace rw
