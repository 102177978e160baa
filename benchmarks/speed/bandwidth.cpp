#include <fmt/format.h>

#include <functional>

#include "benchmarks/speed/cases.h"
#include "core/tensor/primitives.h"
#include "ops/ops.h"

namespace rw::speed {

namespace {

constexpr int64_t many = 1 << 23;

using Op = std::function<Tensor(const Tensor&)>;

// Forward of an op of one tensor: it reads and writes `passes` times the tensor.
Case of(const std::string& name, const Shape& shape, double passes, const Op& op) {
  const double bytes = 4.0 * passes * static_cast<double>(shape.numel());
  return {name, 0, bytes, [=](DType dtype) {
            const Tensor x = standard_values(shape, dtype);
            return forward([=] { return op(x); });
          }};
}
Case both(const std::string& name, const Shape& shape, double passes, const Op& op) {
  const double bytes = 4.0 * passes * static_cast<double>(shape.numel());
  return {name, 0, bytes, [=](DType dtype) {
            const Tensor x = standard_values(shape, dtype, true);
            return forward_and_backward([=] { return op(x); }, {x});
          }};
}

Case normalised(
    const std::string& name, const Shape& shape, double passes,
    const std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& b)>& op) {
  const double bytes = 4.0 * passes * static_cast<double>(shape.numel());
  return {name, 0, bytes, [=](DType dtype) {
            const Tensor x = standard_values(shape, dtype, true);
            const Tensor w = standard_values(Shape{shape[shape.rank() - 1]}, DType::f32, true);
            const Tensor b = standard_values(Shape{shape[shape.rank() - 1]}, DType::f32, true);
            return forward_and_backward([=] { return op(x, w, b); }, {x, w, b});
          }};
}

Case embedded(int64_t tokens, int32_t vocabulary, int64_t width) {
  return {fmt::format("embedding/{}-of-{}x{}-both", tokens, vocabulary, width), 0,
          4.0 * static_cast<double>(4 * tokens * width), [=](DType) {
            const Tensor table = standard_values({vocabulary, width}, DType::f32, true);
            const Tensor index = standard_indices({tokens}, vocabulary);
            return forward_and_backward([=] { return embedding(table, index); }, {table});
          }};
}

}  // namespace

std::vector<Case> bandwidth_cases() {
  const Shape rows{8192, 512};
  const auto add_op = [](DType dtype) {
    const Tensor a = standard_values({many}, dtype), b = standard_values({many}, dtype);
    return forward([=] { return add(a, b); });
  };
  return {
      of("copy", {many}, 2, [](const Tensor& x) { return copy_of(x, x.dtype()); }),
      {"elementwise/add", 0, 12.0 * many, add_op},
      of("elementwise/gelu", {many}, 2, [](const Tensor& x) { return gelu(x); }),
      both("elementwise/relu-both", {many}, 5, [](const Tensor& x) { return relu(x); }),
      both("elementwise/gelu-both", {many}, 5, [](const Tensor& x) { return gelu(x); }),
      both("elementwise/dropout-both", {many}, 4, [](const Tensor& x) { return dropout(x, 0.1f); }),
      of("layout/transpose-2048x2048", {2048, 2048}, 2,
         [](const Tensor& x) { return contiguous(transpose(x, 0, 1)); }),
      of("layout/heads-16x128x4x64", {16, 128, 4, 64}, 2,
         [](const Tensor& x) { return contiguous(transpose(x, 1, 2)); }),
      of("reduction/all", {many}, 1, [](const Tensor& x) { return sum(x); }),
      of("reduction/rows-8192x512", rows, 1, [](const Tensor& x) { return sum(x, {1}); }),
      of("reduction/columns-8192x512", rows, 1, [](const Tensor& x) { return sum(x, {0}); }),
      of("reduction/short-rows-262144x16", {262144, 16}, 1,
         [](const Tensor& x) { return sum(x, {1}); }),
      both("softmax/8192x512-both", rows, 5, [](const Tensor& x) { return softmax(x); }),
      normalised(
          "norm/layer-2048x768-both", {2048, 768}, 5,
          [](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm(x, w, b); }),
      normalised(
          "norm/batch-64x32x32x16-both", {64, 32, 32, 16}, 5,
          [](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, w, b).y; }),
      embedded(2048, 30522, 256),
      embedded(32000, 30522, 256),
  };
}

}  // namespace rw::speed
