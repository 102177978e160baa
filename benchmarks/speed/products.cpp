#include <fmt/format.h>

#include "benchmarks/speed/cases.h"
#include "ops/ops.h"

namespace rw::speed {

namespace {

struct Product {
  int64_t m, n, k;
  const char* layout;  // of a and b: n as they are, t transposed in memory
  std::string name() const { return fmt::format("gemm/{}x{}x{}-{}", m, n, k, layout); }
};

// The cube of the bars in all layouts, odd sizes, the layers of BERT at 16 x 128 tokens (base,
// mini), a ResNet's head, and one sample.
constexpr Product products[] = {
    {1024, 1024, 1024, "nn"}, {1024, 1024, 1024, "nt"}, {1024, 1024, 1024, "tn"},
    {1000, 1003, 997, "nn"},  {1000, 1003, 997, "nt"},  {256, 256, 256, "nn"},
    {2048, 768, 768, "nt"},   {2048, 3072, 768, "nt"},  {2048, 768, 3072, "nt"},
    {768, 768, 2048, "tn"},   {2048, 256, 256, "nt"},   {2048, 1024, 256, "nt"},
    {64, 1000, 512, "nt"},    {1, 512, 784, "nt"},      {4096, 4096, 4096, "nn"},
    {4096, 4096, 4096, "nt"}, {4096, 4096, 4096, "tn"}, {8192, 8192, 8192, "nn"}};
constexpr double kLargeFlops = 1e11;  // of a product

Tensor stored(int64_t rows, int64_t columns, char layout, DType dtype) {
  return layout == 'n' ? standard_values({rows, columns}, dtype)
                       : transpose(standard_values({columns, rows}, dtype), 0, 1);
}

struct Layer {
  int64_t batch, size, in, out;
  int kernel, stride;
  std::string name() const {
    return fmt::format("conv/{}x{}x{}x{}-{}-k{}s{}", batch, size, size, in, out, kernel, stride);
  }
  int64_t out_size() const { return (size + stride - 1) / stride; }
  double flops() const {
    return 2.0 * static_cast<double>(batch * out_size() * out_size() * out * in * kernel * kernel);
  }
};

// ResNet-20's for CIFAR-10 at batch 64, ResNet-50's at batch 8 and, large, at 64.
constexpr Layer small_layers[] = {{64, 32, 3, 16, 3, 1},
                                  {64, 32, 16, 16, 3, 1},
                                  {64, 32, 16, 32, 3, 2},
                                  {64, 16, 32, 32, 3, 1},
                                  {64, 8, 64, 64, 3, 1}};
constexpr Layer deep_layers[] = {{8, 224, 3, 64, 7, 2},   {8, 56, 64, 64, 1, 1},
                                 {8, 56, 64, 64, 3, 1},   {8, 56, 64, 256, 1, 1},
                                 {8, 28, 128, 128, 3, 1}, {8, 28, 256, 512, 1, 2},
                                 {8, 14, 256, 256, 3, 1}, {8, 14, 1024, 256, 1, 1},
                                 {8, 7, 512, 512, 3, 1},  {8, 7, 512, 2048, 1, 1}};

void add_convolution(std::vector<Case>& cases, const Layer& l, bool is_large) {
  const auto made = [l](DType dtype, bool trains) {
    const Conv2dOptions options{.stride = l.stride, .padding = l.kernel / 2};
    const Tensor x = standard_values({l.batch, l.size, l.size, l.in}, dtype, trains);
    const Tensor w = standard_values({l.out, l.kernel, l.kernel, l.in}, dtype, trains);
    const auto body = [=] { return conv2d(x, w, options); };
    return trains ? forward_and_backward(body, {x, w}) : forward(body);
  };
  cases.push_back(
      {l.name() + "-forward", l.flops(), 0, [=](DType t) { return made(t, false); }, is_large});
  cases.push_back(
      {l.name() + "-both", 3 * l.flops(), 0, [=](DType t) { return made(t, true); }, is_large});
}

}  // namespace

std::vector<Case> product_cases() {
  std::vector<Case> cases;
  for (const Product& p : products) {
    const double flops = 2.0 * static_cast<double>(p.m * p.n * p.k);
    const auto make = [=](DType dtype) {
      const Tensor a = stored(p.m, p.k, p.layout[0], dtype);
      const Tensor b = stored(p.k, p.n, p.layout[1], dtype);
      return forward([=] { return matmul(a, b); });
    };
    cases.push_back({p.name(), flops, 0, make, flops > kLargeFlops});
  }
  for (const Layer& l : small_layers) add_convolution(cases, l, false);
  for (const Layer& l : deep_layers) add_convolution(cases, l, false);
  for (Layer l : deep_layers) {
    l.batch = 64;
    add_convolution(cases, l, true);
  }
  return cases;
}

}  // namespace rw::speed
