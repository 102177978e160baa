#include "backends/vulkan/matrix/product.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "backends/vulkan/matrix/matrix_class.h"
#include "backends/vulkan/matrix/matrix_passes.h"
#include "core/base/checked.h"
#include "core/base/environment.h"
#include "core/base/error.h"

namespace rw::vulkan {

namespace {

using kernels::Conv2dParams;
using kernels::MatmulParams;
using Count = std::optional<uint64_t>;  // nothing where it is too large

// Kernels count elements in 32 bits.
constexpr uint64_t most_elements = UINT32_MAX;

Count times(std::initializer_list<uint64_t> factors) {
  Count product = 1;
  for (const uint64_t f : factors) product = checked_mul(product, f);
  return product;
}

// The number of elements up to the last one of a stack of matrices.
Count reach(uint32_t offset, uint32_t rows, uint32_t row, uint32_t cols, uint32_t col,
            const uint32_t count[2], const uint32_t batch[2]) {
  Count last = uint64_t{offset} + 1;
  for (const auto& [n, step] :
       {std::pair{rows, row}, {cols, col}, {count[0], batch[0]}, {count[1], batch[1]}})
    last = last ? checked_add(*last, uint64_t{n - 1} * step) : last;
  return last;
}

std::array<Count, 3> elements(const MatmulParams& p) {
  for (const uint32_t size : {p.m, p.n, p.k, p.batch[0], p.batch[1]})
    check(size > 0, "product", "sizes must be positive, got {}", size);
  check((p.a_row == 1 || p.a_col == 1) && (p.b_row == 1 || p.b_col == 1), "product",
        "either rows or columns must be dense, got steps {}, {} and {}, {}", p.a_row, p.a_col,
        p.b_row, p.b_col);
  return {reach(p.offset[0], p.m, p.a_row, p.k, p.a_col, p.batch, p.a_batch),
          reach(p.offset[1], p.k, p.b_row, p.n, p.b_col, p.batch, p.b_batch),
          reach(p.offset[2], p.m, p.c_row, p.n, 1, p.batch, p.c_batch)};
}

std::array<Count, 3> elements(std::string_view kernel, const Conv2dParams& p) {
  for (const uint32_t size :
       {p.batch, p.in_h, p.in_w, p.in_c, p.out_h, p.out_w, p.out_c, p.kernel_h, p.kernel_w,
        p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.groups})
    check(size > 0 && size < 1u << 24, "product", "sizes must be positive and small, got {}", size);
  check(
      p.in_c % p.groups == 0 && p.out_c % p.groups == 0 && p.pad_h < 1u << 24 && p.pad_w < 1u << 24,
      "product", "groups must divide the channels, got {} and {} in {}", p.in_c, p.out_c, p.groups);
  const Count x = times({p.batch, p.in_h, p.in_w, p.in_c});
  const Count w = times({p.out_c, p.kernel_h, p.kernel_w, p.in_c / p.groups});
  const Count y = times({p.batch, p.out_h, p.out_w, p.out_c});
  std::array<Count, 3> all = kernel == "conv2d"         ? std::array{x, w, y}
                             : kernel == "conv2d_dgrad" ? std::array{y, w, x}
                                                        : std::array{x, y, w};
  for (size_t i = 0; i < 3; ++i)
    if (all[i]) all[i] = checked_add(*all[i], uint64_t{p.offset[i]});
  return all;
}

}  // namespace

std::string line_of(const KernelCall& call) {
  std::string line(call.kernel);
  for (const Binding& b : call.bindings) line += fmt::format(" {}", name(b.dtype));
  for (size_t at = 0; at + 4 <= call.params.size(); at += 4) {
    uint32_t word;
    std::memcpy(&word, &call.params[at], 4);
    line += fmt::format(" {}", word);
  }
  return line;
}

Product parse_product(std::string_view line) {
  std::istringstream in{std::string(line)};
  Product product;
  std::string dtype;
  in >> product.kernel;
  check(is_product(product.kernel), "product",
        "a line must name a product or a convolution, got '{}'", product.kernel.substr(0, 40));
  for (Binding& b : product.bindings) {
    in >> dtype;
    b.dtype = parse_dtype(dtype);
    check(is_float(b.dtype), "product", "factors must be of floats, got {}", dtype);
  }
  product.bindings[2].access = Access::read_write;
  for (uint32_t word; in >> word;) {
    const auto bytes = std::as_bytes(std::span(&word, 1));
    product.params.insert(product.params.end(), bytes.begin(), bytes.end());
  }
  check(in.eof(), "product", "parameters must be numbers of 32 bits, got '{}'",
        line.substr(0, 200));
  const KernelCall call = product.call();
  const auto counts = product.kernel == "matmul"
                          ? elements(params_of<MatmulParams>(call))
                          : elements(product.kernel, params_of<Conv2dParams>(call));
  for (size_t i = 0; i < 3; ++i) {
    check(counts[i] && *counts[i] <= most_elements, "product",
          "tensors must have at most {} elements: '{}'", most_elements, line.substr(0, 200));
    product.bindings[i].range.size = *counts[i] * size_of(product.bindings[i].dtype);
  }
  check(product.bindings[0].dtype == product.bindings[1].dtype, "product",
        "factors must be of one type, got {} and {}", name(product.bindings[0].dtype),
        name(product.bindings[1].dtype));
  return product;
}

void log_product(const KernelCall& call) {
  const std::string file = env_text("REWIND_TUNE_LOG");
  if (file.empty()) return;
  std::FILE* out = std::fopen(file.c_str(), "a");
  check<FileError>(out != nullptr, "REWIND_TUNE_LOG", "'{}' must be a file that can be written",
                   file);
  std::fputs((line_of(call) + "\n").c_str(), out);  // in one piece: several processes may write
  std::fclose(out);
}

}  // namespace rw::vulkan
