// Convolutions with a group per channel on CPU drivers: no products of matrices, but sums along
// pixels with the channels side by side.
#include <algorithm>

#include "backends/vulkan/matrix/conv_axes.h"

namespace rw::vulkan {

using kernels::Conv2dParams;
using kernels::ConvDepthwiseParams;
using kernels::MatrixPackParams;
using kernels::MatrixReduceParams;

namespace {

// ROWS, COLUMNS, TAPS of shaders/depthwise.glsl.
constexpr uint32_t columns = 4, taps = 3;
uint32_t rows_of(DType t) {
  return is_half(t) ? 2 : 4;
}

uint32_t word_of(DType t) {
  return is_half(t) ? 4 : 2;
}

// The weight [channels, taps] as [taps, channels].
Operand taps_outermost(Passes& passes, const Conv2dParams& p, Operand w) {
  const uint32_t size = p.kernel_h * p.kernel_w;
  return add_pack(passes,
                  MatrixPackParams{.offset = {p.offset[1], 0},
                                   .n = 0,
                                   .rows = size,
                                   .cols = p.in_c,
                                   .panel = static_cast<uint32_t>(multiple_of(4, p.in_c)),
                                   .batch_inner = 1,
                                   .x_batch = {},
                                   .x_row = 1,
                                   .x_col = size},
                  1, w);
}

ConvDepthwiseParams depthwise_params(const Conv2dParams& p, const Axes& axes, uint32_t word) {
  const auto& [h, w] = axes;
  ConvDepthwiseParams q{};
  q.words = p.in_c / word;
  q.images = p.batch;
  q.rows_h = h.rows, q.rows_w = w.rows;
  q.taps_h = h.taps, q.taps_w = w.taps;
  q.stride_h = h.stride, q.stride_w = w.stride;
  q.origin_h = h.origin, q.origin_w = w.origin;
  q.step_h = h.step, q.step_w = w.step;
  const auto kernel_w = static_cast<int>(p.kernel_w);
  q.k_first = h.k0 * kernel_w + w.k0;
  q.k_h = h.k_step * kernel_w, q.k_w = w.k_step;
  return q;
}

uint32_t stride_variant(const ConvDepthwiseParams& q) {
  const bool touches = q.step_h == 1 && q.step_w == 1;
  return touches && q.stride_h == q.stride_w && q.stride_w <= 2 ? q.stride_w : 0;
}

// One dispatch for each of `axes`: what it makes of the image of height in_h and width in_w.
void add_image(Passes& passes, const Conv2dParams& p, bool is_gradient,
               const std::vector<Axes>& all, Operand a, Operand b, Operand c, double flops) {
  const Operand weight = taps_outermost(passes, p, b);
  for (const Axes& axes : all) {
    ConvDepthwiseParams q = depthwise_params(p, axes, word_of(a.dtype));
    q.offset[0] = p.offset[0];
    q.in_h = is_gradient ? p.out_h : p.in_h, q.in_w = is_gradient ? p.out_w : p.in_w;
    const uint32_t to_h = is_gradient ? p.in_h : p.out_h, to_w = is_gradient ? p.in_w : p.out_w;
    q.offset[2] = p.offset[2] + (axes.h.first * to_w + axes.w.first) * p.in_c;
    q.y_image = to_h * to_w * q.words;
    q.y_h = axes.h.every * to_w * q.words;
    q.y_w = axes.w.every * q.words;
    q.n = static_cast<uint32_t>(uint64_t{q.images} * divide_up(q.rows_h, rows_of(a.dtype)) *
                                divide_up(q.rows_w, columns) * q.words);
    if (q.n == 0) continue;
    const bool is_whole = q.taps_h % taps == 0 && q.taps_w % taps == 0;
    passes.add("conv_depthwise", {a, weight, c.as(Access::write)}, q, q.n,
               {stride_variant(q), is_whole}, flops / static_cast<double>(all.size()));
  }
}

void add_weight_gradient(Passes& passes, const Conv2dParams& p, Operand x, Operand dy, Operand dw,
                         double flops) {
  const uint32_t size = p.kernel_h * p.kernel_w, elements = size * p.in_c;
  ConvDepthwiseParams q = depthwise_params(p, forward_axes(p), word_of(x.dtype));
  q.offset[0] = p.offset[0], q.offset[1] = p.offset[1];
  q.in_h = p.in_h, q.in_w = p.in_w;
  const uint64_t per_part =
      uint64_t{q.words} * divide_up(p.kernel_h, taps) * divide_up(p.kernel_w, taps);
  const uint64_t tiles = p.batch * divide_up(p.out_h, rows_of(x.dtype));
  const uint64_t longest = std::max<uint64_t>(1, kMaxLoop / (divide_up(p.out_w, columns) + 1));
  const uint64_t wanted = std::min(tiles, divide_up(2048, per_part));
  q.tile_chunk = static_cast<uint32_t>(std::min(longest, divide_up(tiles, wanted)));
  const auto parts = static_cast<uint32_t>(divide_up(tiles, q.tile_chunk));
  q.n = static_cast<uint32_t>(parts * per_part);
  const Operand sums = passes.scratch(uint64_t{parts} * elements, DType::f32);
  passes.add("conv_depthwise_wgrad", {x, dy, sums.as(Access::write)}, q, q.n, {stride_variant(q)},
             flops);
  add_reduce(passes,
             MatrixReduceParams{.offset = {0, p.offset[2]},
                                .n = elements,
                                .rows = p.in_c,
                                .cols = size,
                                .parts = parts,
                                .x_split = elements,
                                .x_batch = 0,
                                .x_i = 1,
                                .inner = size,
                                .x_outer = 0,
                                .x_inner = p.in_c,
                                .batch_inner = 1,
                                .y_batch = {},
                                .y_row = size,
                                .alpha = 1,
                                .beta = 0},
             sums, dw);
}

}  // namespace

bool add_depthwise(Passes& passes, const Caps& caps, std::string_view kernel, const Conv2dParams& p,
                   Operand a, Operand b, Operand c) {
  const bool is_weight = kernel == "conv2d_wgrad", is_gradient = kernel == "conv2d_dgrad";
  // The weight is packed, and its gradient unpacked: only images move by words.
  const uint32_t offsets = p.offset[0] | p.offset[is_weight ? 1 : 2];
  if (p.groups != p.in_c || p.in_c != p.out_c || (p.in_c | offsets) % 4 != 0) return false;
  if (!may_run("conv_depthwise", caps)) return false;
  const double flops = conv_flops(p);
  if (is_weight)
    add_weight_gradient(passes, p, a, b, c, flops);
  else
    add_image(passes, p, is_gradient,
              is_gradient ? gradient_axes(p) : std::vector<Axes>{forward_axes(p)}, a, b, c, flops);
  return true;
}

}  // namespace rw::vulkan
