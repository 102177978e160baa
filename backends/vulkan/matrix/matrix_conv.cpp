// Convolutions: implicit matrix products by tiles, plain products where the kernel is 1x1, and
// direct kernels for groups of few channels.
#include <algorithm>
#include <bit>

#include "backends/vulkan/matrix/conv_axes.h"

namespace rw::vulkan {

using kernels::Conv2dParams;
using kernels::ConvPackParams;
using kernels::ConvTileParams;
using kernels::MatmulParams;
using kernels::MatrixPackParams;
using kernels::MatrixReduceParams;

namespace {

// An image tensor [images, h, w, channels] and where it is bound.
struct Image {
  Operand operand;
  uint32_t offset, images, h, w, channels;
};

// The image itself, or a copy with padded channels when its pixels are not whole words.
Image image_in_words(Passes& passes, const Image& x, uint32_t word) {
  if (x.channels % word == 0 && x.offset % word == 0) return x;
  const uint32_t pixels = x.images * x.h * x.w;
  Image y = x;
  y.channels = multiple_of(4, x.channels);
  y.offset = 0;
  y.operand = add_pack(passes,
                       MatrixPackParams{.offset = {x.offset, 0},
                                        .n = 0,
                                        .rows = pixels,
                                        .cols = x.channels,
                                        .panel = y.channels,
                                        .batch_inner = 1,
                                        .x_batch = {},
                                        .x_row = x.channels,
                                        .x_col = 1},
                       1, x.operand);
  return y;
}

// Whether each group's channels come in words of `word` elements.
bool lies_in_words(const Image& x, uint32_t groups, uint32_t word) {
  return x.channels / groups % word == 0 && x.channels % word == 0 && x.offset % word == 0;
}

// The constants that divide by d: divide() of conv_pixel.glsl.
uint32_t shift_of(uint32_t d) {
  return static_cast<uint32_t>(std::bit_width(d - 1));
}
uint32_t over(uint32_t d) {
  return static_cast<uint32_t>((((uint64_t{1} << shift_of(d)) - d) << 32) / d + 1);
}

// Taps and runs over x. Adjacent taps along w are one run.
ConvTileParams tile_params(const Image& x, const Axes& axes, uint32_t groups) {
  const auto& [h, w] = axes;
  const bool folded = w.step == 1 && groups == 1;
  const uint32_t run = x.channels / groups, row = x.w * x.channels;
  const auto channels = static_cast<int>(x.channels);
  ConvTileParams p{};
  p.offset[0] = x.offset;
  p.images = x.images;
  p.rows_h = h.rows;
  p.rows_w = w.rows;
  p.in_h = x.h;
  p.in_row = row;
  p.stride_h = h.stride;
  p.stride_w = w.stride * x.channels;
  p.origin_h = h.origin;
  p.origin_w = w.origin * channels;
  p.taps_h = h.taps;
  p.taps_w = folded ? 1 : w.taps;
  p.step_h = h.step;
  p.step_w = w.step * channels;
  p.run = folded ? w.taps * run : run;
  p.groups = groups;
  p.x_group = run;
  p.over_w = over(p.rows_w);
  p.over_h = over(p.rows_h);
  p.over_shifts = shift_of(p.rows_w) | shift_of(p.rows_h) << 16;
  return p;
}

// How conv_pack reads the weight: element strides of output, channel, kernel row and column.
struct WeightView {
  Operand operand;
  uint32_t offset, group, n, c, h, w, channels;
};

// y = the sum of `parts` parts of x, which have the same number of elements.
void add_split_sum(Passes& passes, uint32_t parts, uint32_t elements, Operand x, Operand y,
                   uint32_t y_offset) {
  add_reduce(passes,
             MatrixReduceParams{.offset = {0, y_offset},
                                .n = elements,
                                .rows = 1,
                                .cols = elements,
                                .parts = parts,
                                .x_split = elements,
                                .x_batch = 0,
                                .x_i = 0,
                                .inner = elements,
                                .x_outer = 0,
                                .x_inner = 1,
                                .batch_inner = 1,
                                .y_batch = {},
                                .y_row = 0,
                                .alpha = 1,
                                .beta = 0},
             x, y);
}

// y at the pixels of the axes = the product of x and the weight, with n columns per group. y has
// `y.channels` in all.
void add_implicit(Passes& passes, const Caps& caps, const Choice& choice, const Image& x,
                  const WeightView& weight, const Image& y, const Axes& axes, uint32_t groups,
                  double flops) {
  const auto& [h, w] = axes;
  if (h.rows == 0 || w.rows == 0) return;
  const uint32_t n = y.channels / groups;
  ConvTileParams p = tile_params(x, axes, groups);
  const uint64_t rows = uint64_t{p.images} * p.rows_h * p.rows_w;
  const bool is_all_of_y = h.every == 1 && w.every == 1 && h.rows == y.h && w.rows == y.w;
  TileProblem problem{x.operand.dtype, rows, n,      p.taps_h * p.taps_w * p.run,
                      groups,          128,  choice, is_all_of_y};
  const TileFamily family = tile_family(caps, problem);
  const uint32_t tap_rows = multiple_of(family.step, p.run);
  p.n = n;
  p.w_row = multiple_of(family.tile_cols, n);
  p.w_group = p.taps_h * p.taps_w * tap_rows * p.w_row;
  p.offset[2] = y.offset + (h.first * y.w + w.first) * y.channels;
  p.y_image = y.h * y.w * y.channels;
  p.y_h = h.every * y.w * y.channels;
  p.y_w = w.every * y.channels;
  p.y_group = n;
  const uint32_t elements = groups * p.w_group;
  const Operand packed = passes.scratch(std::max(64u, elements), x.operand.dtype);
  const uint32_t channels = x.channels / groups;
  if (elements > 0)
    passes.add("conv_pack", {weight.operand, packed.as(Access::write)},
               ConvPackParams{.offset = {weight.offset, 0},
                              .total = elements / 4,
                              .taps_h = p.taps_h,
                              .taps_w = p.taps_w,
                              .tap_rows = tap_rows,
                              .run = p.run,
                              .channels = channels,
                              .x_channels = weight.channels,
                              .n = n,
                              .y_row = p.w_row,
                              .kh0 = h.k0,
                              .kh_step = h.k_step,
                              .kw0 = w.k0,
                              .kw_step = w.k_step,
                              .x_group = weight.group,
                              .x_n = weight.n,
                              .x_c = weight.c,
                              .x_kh = weight.h,
                              .x_kw = weight.w,
                              .panel = family.step},
               elements / 4, {family.cooperative});
  const bool words_x = lies_in_words(x, groups, word_of(x.operand.dtype));
  problem.k = p.taps_h * p.taps_w * tap_rows;
  problem.may_split &= !family.lanes;
  const Split split = split_k(caps, problem, family);
  p.splits = split.parts;
  p.k_chunk = split.chunk;
  const bool is_split = split.parts > 1;
  const uint32_t results = y.images * p.y_image;
  const Operand to =
      is_split ? passes.scratch(uint64_t{split.parts} * results, DType::f32) : y.operand;
  if (is_split) p.offset[2] = 0;
  const uint32_t stores = std::min(most_stores(x.operand.dtype, to.dtype),
                                   1u << std::countr_zero(n | y.channels | p.offset[2]));
  passes.add(family.kernel("conv"), {x.operand, packed, to.as(Access::write)}, p,
             problem.tiles(family) * split.parts,
             family.lanes ? family.variant(stores, {words_x})
                          : family.variant(stores, {words_x, stores >= 4}),
             flops);
  if (is_split) add_split_sum(passes, split.parts, results, to, y.operand, y.offset);
}

// The elements of one pixel that are read as one word: the CPU drivers' kernels need this; 1 for
// the others.
uint32_t pixel_word(const Caps& caps, const Choice& choice) {
  return takes_subgroup_tiles(caps, choice) ? 4 : 1;
}

WeightView weight_view(const Conv2dParams& p, Operand w, uint32_t offset, bool gradient) {
  const uint32_t channels = p.in_c / p.groups, outputs = p.out_c / p.groups;
  const uint32_t per_output = p.kernel_h * p.kernel_w * channels;
  return {w,
          offset,
          outputs * per_output,
          gradient ? 1 : per_output,
          gradient ? per_output : 1,
          p.kernel_w * channels,
          channels,
          gradient ? outputs : channels};
}

void add_forward(Passes& passes, const Caps& caps, const Choice& choice, const Conv2dParams& p,
                 Operand a, Operand b, Operand c) {
  const Image x = image_in_words(passes, {a, p.offset[0], p.batch, p.in_h, p.in_w, p.in_c},
                                 pixel_word(caps, choice));
  const Image y{c, p.offset[2], p.batch, p.out_h, p.out_w, p.out_c};
  add_implicit(passes, caps, choice, x, weight_view(p, b, p.offset[1], false), y, forward_axes(p),
               p.groups, conv_flops(p));
}

void add_dgrad(Passes& passes, const Caps& caps, const Choice& choice, const Conv2dParams& p,
               Operand a, Operand b, Operand c) {
  const Image dy = image_in_words(passes, {a, p.offset[0], p.batch, p.out_h, p.out_w, p.out_c},
                                  pixel_word(caps, choice));
  const Image dx{c, p.offset[2], p.batch, p.in_h, p.in_w, p.in_c};
  const WeightView w = weight_view(p, b, p.offset[1], true);
  const double flops = conv_flops(p) / (p.stride_h * p.stride_w);
  for (const Axes& axes : gradient_axes(p))
    add_implicit(passes, caps, choice, dy, w, dx, axes, p.groups, flops);
}

void add_wgrad(Passes& passes, const Caps& caps, const Choice& choice, const Conv2dParams& p,
               Operand a, Operand b, Operand c) {
  const uint32_t channels = p.in_c / p.groups, n = p.out_c / p.groups;
  const Image x = image_in_words(passes, {a, p.offset[0], p.batch, p.in_h, p.in_w, p.in_c},
                                 pixel_word(caps, choice));
  const Image dy = image_in_words(passes, {b, p.offset[1], p.batch, p.out_h, p.out_w, p.out_c},
                                  pixel_word(caps, choice));
  ConvTileParams t = tile_params(x, forward_axes(p), p.groups);
  const uint32_t rows = t.taps_h * t.taps_w * t.run;
  const uint32_t word = word_of(a.dtype);
  const bool words_x = lies_in_words(x, p.groups, word);
  // Loading x element by element takes registers that the largest tiles do not have on Apple's.
  const TileProblem problem{
      a.dtype, rows, n, p.batch * p.out_h * p.out_w, p.groups, words_x ? 128u : 64u, choice};
  const TileFamily family = tile_family(caps, problem);
  const uint64_t tiles = problem.tiles(family);
  const Split split = split_k(caps, problem, family);
  t.offset[1] = dy.offset;
  t.w_row = dy.channels;
  t.w_group = n;
  t.n = n;
  t.y_w = n;
  t.y_group = rows * n;
  t.y_image = p.groups * rows * n;
  t.k_chunk = split.chunk;
  t.splits = split.parts;
  const Operand parts = passes.scratch(uint64_t{split.parts} * t.y_image, DType::f32);
  passes.add(family.kernel("conv_wgrad"), {x.operand, dy.operand, parts.as(Access::write)}, t,
             tiles * split.parts,
             family.variant(n % 4 == 0 ? 4 : 1, {words_x, lies_in_words(dy, p.groups, word)}),
             conv_flops(p));
  const uint32_t cols = p.kernel_h * p.kernel_w * channels;
  add_reduce(passes,
             MatrixReduceParams{.offset = {0, p.offset[2]},
                                .n = p.out_c * cols,
                                .rows = n,
                                .cols = cols,
                                .parts = split.parts,
                                .x_split = t.y_image,
                                .x_batch = rows * n,
                                .x_i = 1,
                                .inner = channels,
                                .x_outer = x.channels / p.groups * n,
                                .x_inner = n,
                                .batch_inner = p.groups,
                                .y_batch = {0, n * cols},
                                .y_row = cols,
                                .alpha = 1,
                                .beta = 0},
             parts, c);
}

// ---- special cases -------------------------------------------------------------------------
// Groups of few channels fill no tiles.
bool is_narrow(const Conv2dParams& p) {
  return p.groups > 1 && (p.in_c / p.groups % 4 != 0 || p.out_c / p.groups % 4 != 0);
}

void add_direct(Passes& passes, const Caps& caps, std::string_view kernel, const Conv2dParams& p,
                Operand a, Operand b, Operand c) {
  Conv2dParams q = p;
  if (kernel != "conv2d_wgrad") {
    const bool forward = kernel == "conv2d";
    q.n = forward ? p.batch * p.out_h * p.out_w * p.out_c : p.batch * p.in_h * p.in_w * p.in_c;
    passes.add(forward ? "conv_direct" : "conv_dgrad_direct", {a, b, c.as(Access::write)}, q, q.n,
               {}, conv_flops(p));
    return;
  }
  const uint32_t elements = p.out_c * p.kernel_h * p.kernel_w * (p.in_c / p.groups);
  const uint64_t lines = uint64_t{p.batch} * p.out_h;
  const uint64_t wanted = divide_up(caps.is_cpu ? 1024 : 65536, elements);
  const uint64_t longest = std::max(1u, kMaxLoop / p.out_w);
  q.line_chunk = static_cast<uint32_t>(
      std::min(longest, std::max<uint64_t>(1, divide_up(lines, std::min(lines, wanted)))));
  const auto parts = static_cast<uint32_t>(divide_up(lines, q.line_chunk));
  q.n = parts * elements;
  q.offset[2] = 0;
  const Operand sums = passes.scratch(q.n, DType::f32);
  passes.add("conv_wgrad_direct", {a, b, sums.as(Access::write)}, q, q.n, {}, conv_flops(p));
  add_split_sum(passes, parts, elements, sums, c, p.offset[2]);
}

}  // namespace

bool is_pointwise(const Conv2dParams& p) {
  return p.kernel_h == 1 && p.kernel_w == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_h == 0 &&
         p.pad_w == 0 && p.groups == 1;
}

std::pair<MatmulParams, bool> pointwise_product(std::string_view kernel, const Conv2dParams& p) {
  const uint32_t pixels = p.batch * p.in_h * p.in_w;
  MatmulParams q{};
  q.batch[0] = q.batch[1] = 1;
  q.alpha = 1;
  std::copy(p.offset, p.offset + 3, q.offset);
  if (kernel == "conv2d") {  // x w^T
    q.m = pixels, q.n = p.out_c, q.k = p.in_c;
    q.a_row = p.in_c, q.a_col = 1, q.b_row = 1, q.b_col = p.in_c, q.c_row = p.out_c;
  } else if (kernel == "conv2d_dgrad") {  // dy w
    q.m = pixels, q.n = p.in_c, q.k = p.out_c;
    q.a_row = p.out_c, q.a_col = 1, q.b_row = p.in_c, q.b_col = 1, q.c_row = p.in_c;
  } else {  // dy^T x
    q.m = p.out_c, q.n = p.in_c, q.k = pixels;
    q.a_row = 1, q.a_col = p.out_c, q.b_row = p.in_c, q.b_col = 1, q.c_row = p.in_c;
    std::swap(q.offset[0], q.offset[1]);
    return {q, true};
  }
  return {q, false};
}

void add_conv(Passes& passes, const Caps& caps, const Choice& choice, std::string_view kernel,
              const Conv2dParams& p, Operand a, Operand b, Operand c) {
  // On CPU drivers that cannot run their own tiles, those of GPUs are slower than none.
  const bool has_tiles =
      !caps.is_cpu || takes_subgroup_tiles(caps, choice) || choice.family == Choice::Family::tiled;
  const bool naive = choice.family == Choice::Family::naive || !has_tiles;
  if (has_tiles && is_pointwise(p)) {
    const auto [product, swaps] = pointwise_product(kernel, p);
    return add_matmul(passes, caps, choice, product, swaps ? b : a, swaps ? a : b, c);
  }
  if (naive || is_narrow(p)) return add_direct(passes, caps, kernel, p, a, b, c);
  if (kernel == "conv2d") return add_forward(passes, caps, choice, p, a, b, c);
  if (kernel == "conv2d_dgrad") return add_dgrad(passes, caps, choice, p, a, b, c);
  add_wgrad(passes, caps, choice, p, a, b, c);
}

}  // namespace rw::vulkan
