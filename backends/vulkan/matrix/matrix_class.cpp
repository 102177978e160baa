#include "backends/vulkan/matrix/matrix_class.h"

#include <bit>

#include "backends/vulkan/matrix/matrix_passes.h"

namespace rw::vulkan {

namespace {

using kernels::Conv2dParams;
using kernels::MatmulParams;

// The nearest power of two, roughly; 0 of 0.
uint64_t bucket(uint64_t size) {
  return std::bit_floor(size + size / 2);
}

std::string dtypes(DType in, DType out) {
  return fmt::format("{}-{}", name(in), name(out));
}

// The largest word, of at most 8 elements, in which `lines` lines of `length` elements lie.
uint32_t largest_word(uint32_t offset, uint32_t step, uint32_t lines, uint32_t length,
                      const uint32_t batch[2]) {
  for (const uint32_t word : {8u, 4u, 2u})
    if (length % word == 0 && in_words(word, offset, step, lines, batch)) return word;
  return 1;
}

std::string size_class(const MatmulParams& p, DType in, DType out) {
  const bool a_lies = p.a_col == 1, b_lies = p.b_col == 1;
  const uint64_t batches = uint64_t{p.batch[0]} * p.batch[1];
  if (p.m == 0 || p.n == 0 || batches == 0) return "";
  const uint32_t a = a_lies ? largest_word(p.offset[0], p.a_row, p.m, p.k, p.a_batch)
                            : largest_word(p.offset[0], p.a_col, p.k, p.m, p.a_batch);
  const uint32_t b = b_lies ? largest_word(p.offset[1], p.b_row, p.k, p.n, p.b_batch)
                            : largest_word(p.offset[1], p.b_col, p.n, p.k, p.b_batch);
  const uint32_t c = largest_word(p.offset[2], p.c_row, p.m, p.n, p.c_batch);
  return fmt::format("gemm {} {}{} a{} b{} c{} m{} n{} k{} x{}", dtypes(in, out),
                     a_lies ? 'n' : 't', b_lies ? 'n' : 't', a, b, c, bucket(p.m), bucket(p.n),
                     bucket(p.k), bucket(batches));
}

std::string size_class(std::string_view kernel, const Conv2dParams& p, DType in, DType out) {
  const uint64_t pixels = uint64_t{p.batch} * p.out_h * p.out_w;
  if (pixels == 0 || p.in_c == 0 || p.out_c == 0 || p.groups == 0) return "";
  const uint32_t channels = p.in_c / p.groups, outputs = p.out_c / p.groups;
  const bool is_forward = kernel == "conv2d";
  const uint32_t none[2] = {};
  const uint32_t of_x =
      largest_word(p.offset[kernel == "conv2d_dgrad" ? 2 : 0], p.in_c, 2, channels, none);
  const uint32_t of_y = largest_word(p.offset[is_forward                 ? 2
                                              : kernel == "conv2d_dgrad" ? 0
                                                                         : 1],
                                     p.out_c, 2, outputs, none);
  std::string text = fmt::format("{} {} k{}x{} s{}x{}", kernel, dtypes(in, out), p.kernel_h,
                                 p.kernel_w, p.stride_h, p.stride_w);
  if (p.dilation_h > 1 || p.dilation_w > 1)
    text += fmt::format(" d{}x{}", p.dilation_h, p.dilation_w);
  if (p.groups > 1) text += p.groups == p.in_c ? " depthwise" : fmt::format(" g{}", p.groups);
  return text + fmt::format(" x{} y{} pixels{} in{} out{}", of_x, of_y, bucket(pixels),
                            bucket(channels), bucket(outputs));
}

}  // namespace

bool is_product(std::string_view kernel) {
  return kernel == "matmul" || kernel == "conv2d" || kernel == "conv2d_dgrad" ||
         kernel == "conv2d_wgrad";
}

std::string class_of(const KernelCall& call) {
  if (!is_product(call.kernel)) return "";
  const DType in = call.bindings[0].dtype, out = call.bindings[2].dtype;
  if (call.kernel == "matmul") return size_class(params_of<MatmulParams>(call), in, out);
  const auto p = params_of<Conv2dParams>(call);
  if (is_pointwise(p)) return size_class(pointwise_product(call.kernel, p).first, in, out);
  return size_class(call.kernel, p, in, out);
}

}  // namespace rw::vulkan
