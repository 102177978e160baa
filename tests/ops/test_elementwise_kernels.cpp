// Elementwise kernels: every gradient of shaders/elementwise.def against finite differences.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "backends/reference/loops/elementwise.h"
#include "backends/reference/reference_backend.h"
#include "shaders/params.h"
#include "tests/fixtures/kernel_runner.h"

using namespace rw;
using namespace rw::kernels;
using rw::test::KernelRunner;
using rw::test::max_difference;

namespace {

enum class SavedValue { x, y, none };
constexpr SavedValue SAVE_X = SavedValue::x, SAVE_Y = SavedValue::y, SAVE_NONE = SavedValue::none;

struct UnaryRow {
  uint32_t id;
  const char* name;
  SavedValue saves;
  float lo, hi;
};
constexpr UnaryRow unary_rows[] = {
#define UNARY(id, name, forward, grad, saves, lo, hi) {id, #name, saves, lo, hi},
#include "shaders/elementwise.def"
};

// Returns 50 points of the domain, none of which is on a kink of any op.
std::vector<float> points(const UnaryRow& row) {
  std::vector<float> x(50);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = row.lo + (row.hi - row.lo) * (static_cast<float>(i) + 0.37f) / 50;
  return x;
}

}  // namespace

TEST_CASE("unary: gradients match central differences" * doctest::test_suite("host")) {
  KernelRunner cpu(make_reference_backend());
  const float a = 0.7f, b = 1.9f;
  for (const UnaryRow& row : unary_rows) {
    CAPTURE(row.name);
    const std::vector<float> x = points(row);
    std::vector<float> dy, expected;
    for (size_t i = 0; i < x.size(); ++i) {
      const double h = 1e-5, at = x[i];
      dy.push_back(0.5f + 0.1f * static_cast<float>(i % 7));
      const auto f = [&](double v) { return reference::apply_unary(row.id, v, a, b); };
      expected.push_back(static_cast<float>((f(at + h) - f(at - h)) / (2 * h) * dy.back()));
    }
    const uint32_t n = static_cast<uint32_t>(x.size());
    const Binding bx = cpu.upload(x), by = cpu.allocate(n), bdy = cpu.upload(dy);
    const Binding dx = cpu.allocate(n);
    cpu.run("unary", {bx, by}, UnaryParams{.offset = {}, .n = n, .a = a, .b = b}, {row.id, 1});
    const Binding saved = row.saves == SAVE_X ? bx : row.saves == SAVE_Y ? by : cpu.allocate(n);
    cpu.run("unary_grad", {saved, bdy, dx}, UnaryGradParams{.offset = {}, .n = n, .a = a, .b = b},
            {row.id, 1});
    const auto actual = cpu.download(dx);
    for (size_t i = 0; i < x.size(); ++i)
      CHECK(actual[i] == doctest::Approx(expected[i]).epsilon(1e-4));
  }
}

TEST_CASE("unary: known values" * doctest::test_suite("host")) {
  const auto f = [](uint32_t op, double x, double a = 0, double b = 0) {
    return reference::apply_unary(op, x, a, b);
  };
  CHECK(f(8, std::log(3.0)) == doctest::Approx(0.75));                   // sigmoid
  CHECK(f(10, std::log(3.0)) == doctest::Approx(0.75 * std::log(3.0)));  // silu
  CHECK(f(11, 1) == doctest::Approx(0.8413447461).epsilon(1e-7));        // gelu: x * Phi(x)
  CHECK(f(12, 1) == doctest::Approx(0.8411919906));                      // its tanh form
  CHECK(f(14, 5, -1, 2) == 2);                                           // clamp
  CHECK(f(17, -std::log(2.0), 3) == doctest::Approx(-1.5));              // elu
  CHECK(f(18, 0) == doctest::Approx(std::log(2.0)));                     // softplus
  CHECK(f(18, 800) == 800);                                              // does not overflow
  CHECK(std::isnan(f(7, std::numeric_limits<double>::quiet_NaN())));     // relu keeps NaN
}

TEST_CASE("unary: strided input, f16, element offsets" * doctest::test_suite("host")) {
  KernelRunner cpu(make_reference_backend());
  const Binding x = cpu.upload({9, 1, 2, 3, 4, 5, 6}, DType::f16), y = cpu.allocate(6, DType::f16);
  UnaryParams p{.offset = {1, 0}, .n = 6, .a = 0, .b = 0, .rank = 2};
  p.shape[0] = 3, p.shape[1] = 2;  // the transpose of [2, 3]
  p.x_stride[0] = 1, p.x_stride[1] = 3;
  cpu.run("unary", {x, y}, p, {0, 0});
  CHECK(cpu.download(y) == std::vector<float>{-1, -4, -2, -5, -3, -6});
}

TEST_CASE("copy: casts and views" * doctest::test_suite("host")) {
  KernelRunner cpu(make_reference_backend());
  const Binding x = cpu.upload({-2.75f, 2.75f, 300.5f, 0});
  const auto cast = [&](DType dtype) {
    const Binding y = cpu.allocate(4, dtype);
    cpu.run("copy", {x, y},
            CopyParams{
                .offset = {}, .n = 4, .rank = 1, .shape = {4}, .x_stride = {1}, .y_stride = {1}});
    return cpu.download(y);
  };
  CHECK(cast(DType::i32) == std::vector<float>{-2, 2, 300, 0});
  CHECK(cast(DType::u8) == std::vector<float>{254, 2, 44, 0});
  CHECK(cast(DType::f16) == std::vector<float>{-2.75f, 2.75f, 300.5f, 0});

  // Column 1 of [2, 2] goes into every second element.
  const Binding y = cpu.upload({7, 7, 7, 7});
  CopyParams p{.offset = {1, 0}, .n = 2, .rank = 1};
  p.shape[0] = 2, p.x_stride[0] = 2, p.y_stride[0] = 2;
  cpu.run("copy", {x, y}, p, {0});
  CHECK(cpu.download(y) == std::vector<float>{2.75f, 7, 0, 7});
}

TEST_CASE("binary: all modes, integers, comparisons, where" * doctest::test_suite("host")) {
  KernelRunner cpu(make_reference_backend());
  std::vector<float> values(16), expected(16);
  for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(i);
  const Binding a = cpu.upload(values), b = cpu.upload({1, 2, 3, 4, 5, 6, 7, 8});
  const Binding y = cpu.allocate(16);
  for (int i = 0; i < 16; ++i) expected[i] = values[i] - static_cast<float>(i % 8 + 1);

  BinaryParams p{.offset = {}, .n = 16, .period = 8, .rank = 2};
  cpu.run("binary", {a, b, y}, p, {1, 2});
  CHECK(cpu.download(y) == expected);
  p.shape[0] = 2, p.shape[1] = 8;
  p.a_stride[0] = 8, p.a_stride[1] = 1;
  p.b_stride[0] = 0, p.b_stride[1] = 1;
  cpu.run("binary", {a, b, y}, p, {1, 0});
  CHECK(cpu.download(y) == expected);
  cpu.run("binary", {a, b, y}, p, {2, 3});
  CHECK(cpu.download(y) == values);  // times b[0] = 1
  cpu.run("binary", {a, a, y}, p, {0, 1});
  CHECK(cpu.download(y)[15] == 30);

  const Binding ia = cpu.upload({7, -7, 8, 3}, DType::i32);
  const Binding ib = cpu.upload({2, 2, 1, 0}, DType::i32), iy = cpu.allocate(4, DType::i32);
  cpu.run("binary", {ia, ib, iy}, BinaryParams{.offset = {}, .n = 4}, {3, 1});
  CHECK(cpu.download(iy) == std::vector<float>{3, -3, 8, 0});

  const Binding less = cpu.allocate(4, DType::u8), picked = cpu.allocate(4, DType::i32);
  cpu.run("compare", {ia, ib, less}, BinaryParams{.offset = {}, .n = 4}, {2, 1});
  CHECK(cpu.download(less) == std::vector<float>{0, 1, 0, 0});
  WhereParams w{.offset = {}, .n = 4, .rank = 1};
  w.shape[0] = 4, w.c_stride[0] = w.a_stride[0] = 1;  // b: one element, broadcast
  cpu.run("where", {less, ia, ib, picked}, w);
  CHECK(cpu.download(picked) == std::vector<float>{2, -7, 2, 2});
}
