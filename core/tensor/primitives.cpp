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

namespace {

enum CopyWay : uint32_t { copy_elements, copy_flat, copy_words };

// Of a strided copy: its collapsed dimensions, with their strides in source and target.
struct Strided {
  Shape shape;
  Strides strides[2];
  int rank() const { return shape.rank(); }
};

// Whether the last dimension is dense in both and all moves in words of 8 elements.
bool moves_in_words(const Strided& s, const Tensor& source, const Tensor& target) {
  const int last = s.rank() - 1;
  if (last < 0) return false;
  bool words = s.shape[last] % 8 == 0 && source.impl().offset % 8 == 0 &&
               target.impl().offset % 8 == 0 && s.strides[0][last] == 1 && s.strides[1][last] == 1;
  for (int axis = 0; axis < last; ++axis)
    words = words && s.strides[0][axis] % 8 == 0 && s.strides[1][axis] % 8 == 0;
  return words;
}

// Tiles of the copy's last two dimensions, where it turns a matrix on a GPU: the dimension that the
// source is dense along comes before the last one, which the target is dense along. 0 elsewhere.
int64_t turn(Strided& s, const DeviceInfo& device) {
  constexpr int64_t side = 32, least = 8;
  const int last = s.rank() - 1;
  if (device.is_cpu || last < 1 || s.strides[1][last] != 1 || s.shape[last] < least) return 0;
  for (int axis = 0; axis < last; ++axis) {
    if (s.strides[0][axis] != 1 || s.shape[axis] < least) continue;
    for (int a = axis; a + 1 < last; ++a) {
      std::swap(s.shape[a], s.shape[a + 1]);
      for (Strides& strides : s.strides) std::swap(strides[a], strides[a + 1]);
    }
    int64_t tiles = 1;
    for (int a = 0; a <= last; ++a)
      tiles *= a < last - 1 ? s.shape[a] : (s.shape[a] + side - 1) / side;
    return tiles;
  }
  return 0;
}

}  // namespace

void copy_into(const Tensor& source, const Tensor& target) {
  check<ShapeError>(source.shape() == target.shape(), "copy", "shapes must agree, got {} and {}",
                    source, target);
  if (source.numel() == 0) return;  // whose other sizes may be more than kernels can count
  if (overlap_in_part(source, target)) return copy_into(copy_of(source, target.dtype()), target);
  // A kernel sees 16-bit floats of one kind only.
  if (is_half(source.dtype()) && is_half(target.dtype()) && source.dtype() != target.dtype())
    return copy_into(copy_of(source, DType::f32), target);
  kernels::CopyParams params{.n = count32(source.numel(), "copy")};
  const auto run = [&](const char* kernel, int64_t threads, CopyWay way) {
    launch(kernel, {in(source), out(target)}, params,
           {.threads = {count32(threads, "copy"), 1, 1}, .variant = {way}});
  };
  if (is_flat(source) && is_flat(target)) return run("copy", flat_threads(params.n), copy_flat);

  Strided s{source.shape(), {source.strides(), target.strides()}};
  collapse(s.shape, s.strides);
  const bool words = moves_in_words(s, source, target);
  if (words) {
    const int last = s.rank() - 1;
    s.shape[last] /= 8;
    for (Strides& strides : s.strides) strides[last] = 8;
  }
  const int64_t tiles = words ? 0 : turn(s, source.device().info());
  params.rank = static_cast<uint32_t>(s.rank());
  copy_dims(s.shape, params.shape);
  copy_dims(s.strides[0], params.x_stride);
  copy_dims(s.strides[1], params.y_stride);
  if (tiles) return run("copy_tiled", tiles, copy_elements);
  run("copy", words ? params.n / 8 : params.n, words ? copy_words : copy_elements);
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

// How b lies under a dense a of the output's shape.
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
  Tensor y = empty(x.shape(), dtype, x.device().shared_from_this());
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
