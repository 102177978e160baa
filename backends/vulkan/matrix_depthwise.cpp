// Convolutions with a group per channel: no products of matrices, but sums along pixels with the
// channels side by side.
#include <algorithm>

#include "rewind/backends/vulkan/matrix_passes.h"

namespace rw::vulkan {

using kernels::Conv2dParams;
using kernels::ConvDirectParams;
using kernels::MatrixPackParams;
using kernels::MatrixReduceParams;

namespace {

constexpr uint32_t channels_per_thread = 8;
constexpr uint32_t columns_per_thread = 4, taps_per_thread = 3;  // COLUMNS, TAPS of the shaders

ConvDirectParams direct_params(const Conv2dParams& p) {
  ConvDirectParams q{};
  static_assert(offsetof(ConvDirectParams, groups) == offsetof(Conv2dParams, groups));
  std::memcpy(&q, &p, sizeof p);
  return q;
}

// The weight [channels, taps] as [taps, channels].
Operand taps_outermost(Passes& passes, const Conv2dParams& p, Operand w) {
  const uint32_t taps = p.kernel_h * p.kernel_w;
  return add_pack(passes,
                  MatrixPackParams{.offset = {p.offset[1], 0},
                                   .n = 0,
                                   .rows = taps,
                                   .cols = p.in_c,
                                   .panel = p.in_c,
                                   .batch_inner = 1,
                                   .x_batch = {},
                                   .x_row = 1,
                                   .x_col = taps},
                  1, w);
}

void add_weight_gradient(Passes& passes, const Caps& caps, const Conv2dParams& p, Operand x,
                         Operand dy, Operand dw, double flops) {
  const uint32_t taps = p.kernel_h * p.kernel_w, elements = taps * p.in_c;
  const uint64_t per_part =
      uint64_t{p.in_c} / channels_per_thread * p.kernel_h * divide_up(p.kernel_w, taps_per_thread);
  const uint64_t lines = uint64_t{p.batch} * p.out_h;
  const uint64_t wanted = divide_up(caps.is_cpu ? 256 : 65536, per_part);
  const uint64_t longest = std::max(1u, kMaxLoop / p.out_w);
  ConvDirectParams q = direct_params(p);
  q.line_chunk = static_cast<uint32_t>(
      std::min(longest, std::max<uint64_t>(1, divide_up(lines, std::min(lines, wanted)))));
  const auto parts = static_cast<uint32_t>(divide_up(lines, q.line_chunk));
  q.n = static_cast<uint32_t>(parts * per_part);
  q.offset[2] = 0;
  const Operand sums = passes.scratch(uint64_t{parts} * elements, DType::f32);
  passes.add("conv_depthwise_wgrad", {x, dy, sums}, Access::write, q, q.n, {}, flops);
  add_reduce(passes,
             MatrixReduceParams{.offset = {0, p.offset[2]},
                                .n = elements,
                                .rows = p.in_c,
                                .cols = taps,
                                .parts = parts,
                                .x_split = elements,
                                .x_batch = 0,
                                .x_i = 1,
                                .inner = taps,
                                .x_outer = 0,
                                .x_inner = p.in_c,
                                .batch_inner = 1,
                                .y_batch = {},
                                .y_row = taps,
                                .alpha = 1,
                                .beta = 0},
             sums, dw);
}

}  // namespace

bool add_depthwise(Passes& passes, const Caps& caps, std::string_view kernel, const Conv2dParams& p,
                   Operand a, Operand b, Operand c) {
  const bool is_weight = kernel == "conv2d_wgrad", is_gradient = kernel == "conv2d_dgrad";
  // The weight is packed, and its gradient unpacked: only images move 8 elements at a time.
  const uint32_t offsets = p.offset[0] | p.offset[is_weight ? 1 : 2];
  if (p.groups != p.in_c || p.in_c != p.out_c || (p.in_c | offsets) % channels_per_thread != 0)
    return false;
  if (!is_weight && !may_run("matrix_pack", caps)) return false;  // kernels of CPU drivers
  const double flops = 2.0 * p.batch * p.out_h * p.out_w * p.out_c * p.kernel_h * p.kernel_w;
  if (is_weight) {
    add_weight_gradient(passes, caps, p, a, b, c, flops);
    return true;
  }
  ConvDirectParams q = direct_params(p);
  const uint32_t height = is_gradient ? p.in_h : p.out_h, width = is_gradient ? p.in_w : p.out_w;
  q.n = static_cast<uint32_t>(uint64_t{p.batch} * height * divide_up(width, columns_per_thread) *
                              (p.in_c / channels_per_thread));
  q.offset[1] = 0;
  passes.add("conv_depthwise", {a, taps_outermost(passes, p, b), c}, Access::write, q, q.n,
             {is_gradient}, flops);
  return true;
}

}  // namespace rw::vulkan
