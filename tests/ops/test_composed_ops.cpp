// Ops that the host splits into several kernels or makes of others: all devices share that, so
// these are compared with plain loops in double, or with values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/numeric.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

struct PoolCase {
  Shape x;
  Size2d kernel, stride, padding, dilation = 1;
  bool count_include_pad = true;
};

// The results and the gradient of x for the gradient `slope(i)` of result i.
struct PoolValues {
  std::vector<double> y, dx;
};

double slope(size_t i) {
  return static_cast<double>(i % 7) - 2;
}

PoolValues pooled(const PoolCase& c, const std::vector<float>& x, bool is_max) {
  PoolValues out;
  out.dx.resize(x.size());
  const auto places = [](int64_t size, int kernel, int stride, int pad, int dilation) {
    return (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const int64_t height = c.x[1], width = c.x[2], channels = c.x[3];
  const int64_t rows = places(height, c.kernel.h, c.stride.h, c.padding.h, c.dilation.h);
  const int64_t cols = places(width, c.kernel.w, c.stride.w, c.padding.w, c.dilation.w);
  for (int64_t n = 0; n < c.x[0]; ++n)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        for (int64_t k = 0; k < channels; ++k) {
          std::vector<size_t> taps;
          for (int a = 0; a < c.kernel.h; ++a)
            for (int b = 0; b < c.kernel.w; ++b) {
              const int64_t h = i * c.stride.h - c.padding.h + a * c.dilation.h;
              const int64_t w = j * c.stride.w - c.padding.w + b * c.dilation.w;
              if (h >= 0 && h < height && w >= 0 && w < width)
                taps.push_back(static_cast<size_t>(((n * height + h) * width + w) * channels + k));
            }
          const double dy = slope(out.y.size());
          if (is_max) {
            const auto less = [&](size_t p, size_t q) { return x[p] < x[q]; };
            const size_t best = *std::ranges::max_element(taps, less);
            out.y.push_back(x[best]);
            out.dx[best] += dy;
            continue;
          }
          const auto count = c.count_include_pad ? static_cast<double>(c.kernel.h) * c.kernel.w
                                                 : static_cast<double>(taps.size());
          double sum = 0;
          for (const size_t p : taps) sum += x[p], out.dx[p] += dy / count;
          out.y.push_back(sum / count);
        }
  return out;
}

void check_near(const Tensor& got, const std::vector<double>& expected, double bound) {
  const std::vector<float> values = got.to_vector();
  REQUIRE(values.size() == expected.size());
  size_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i)
    wrong += !(std::abs(values[i] - expected[i]) <= bound * (1 + std::abs(expected[i])));
  CHECK(wrong == 0);
}

void check_pool(const PoolCase& c, bool is_max) {
  const Tensor x =
      reshape(leaf(c.x.numel()).detach() + rand({c.x.numel()}), c.x).detach().set_requires_grad();
  const Pool2dOptions options = {c.kernel, c.stride, c.padding, c.dilation, c.count_include_pad};
  const PoolValues expected = pooled(c, x.to_vector(), is_max);
  const Tensor y = is_max ? max_pool2d(x, options) : avg_pool2d(x, options);
  check_near(y, expected.y, is_max ? 0 : 1e-5);
  std::vector<float> dy;
  for (size_t i = 0; i < expected.y.size(); ++i) dy.push_back(static_cast<float>(slope(i)));
  y.backward(tensor(dy, y.shape()));
  check_near(x.grad(), expected.dx, 1e-5);
}

}  // namespace

TEST_CASE("composed ops: pooling with windows that are split") {
  const PoolCase cases[] = {
      {.x = {1, 140, 120, 2}, .kernel = 100, .stride = {1, 7}, .padding = 0},
      {.x = {2, 110, 130, 1}, .kernel = {95, 100}, .stride = 9, .padding = {40, 50}},
      {.x = {1, 105, 103, 1}, .kernel = 101, .stride = 2, .padding = 3, .count_include_pad = false},
      {.x = {1, 30, 40, 3}, .kernel = 3, .stride = 2, .padding = 1},
  };
  for (const char* name : {"reference", "cpu"}) {
    const DeviceScope device(Device::create(open_backend(name)));
    for (const PoolCase& c : cases) {
      CAPTURE(name);
      CAPTURE(c.x.str());
      check_pool(c, true);
      check_pool(c, false);
    }
    PoolCase apart = cases[0];
    apart.kernel = {46, 60}, apart.dilation = {3, 2};
    check_pool(apart, true);
    const PoolCase strips = {
        .x = {1, 96, 300, 1}, .kernel = {91, 92}, .stride = 5, .padding = {45, 2}};
    check_pool(strips, true);
    check_pool(strips, false);
  }
}

TEST_CASE("composed ops: the classes of numbers") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  on_each_device([] {
    const Tensor x = tensor({0, -2, infinity, -infinity, std::nanf("")}, {5});
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      INFO(name(dtype));
      const Tensor of = cast(x, dtype);
      CHECK(isnan(of).to_vector() == std::vector<float>{0, 0, 0, 0, 1});
      CHECK(isinf(of).to_vector() == std::vector<float>{0, 0, 1, 1, 0});
      CHECK(isfinite(of).to_vector() == std::vector<float>{1, 1, 0, 0, 0});
      CHECK(nan_to_num(of, 7, 8, -9).to_vector() == std::vector<float>{0, -2, 8, -9, 7});
    }
  });
}

}  // namespace rw::test
