// Every row of shaders/elementwise.def, forward and gradient, and the losses of logits, against
// the C library in long double, over all exponents of f32 and near each zero. Formulas here are
// those of a textbook: in long double nothing that f32 can show is lost where terms cancel, except
// where a formula says so.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <map>
#include <random>

#include "backends/cpu/cpu_backend.h"
#include "backends/open.h"
#include "backends/reference/reference_backend.h"
#include "core/base/error.h"
#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"
#include "tests/fixtures/kernel_runner.h"
#include "tests/op_table/f64_backend.h"

namespace rw::test {

namespace {

using namespace kernels;
using Wide = long double;

constexpr Wide wide_pi = 3.14159265358979323846264338327950288L;
constexpr float row_a = 0.7f, row_b = 1.9f;  // the parameters of all rows

Wide wide_sigmoid(Wide x) {
  return 1 / (1 + std::exp(-x));
}
Wide wide_softplus(Wide x) {
  return x > 100 ? x : std::log1p(std::exp(x));
}
Wide wide_phi(Wide x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * wide_pi);
}
Wide wide_gelu_tanh(Wide x) {  // 2 u
  return 2 * std::sqrt(2 / wide_pi) * (x + 0.044715L * x * x * x);
}
Wide wide_bound(Wide x, Wide low, Wide high) {
  return x < low ? low : x > high ? high : x;
}
// Bisection, which needs no derivative.
Wide wide_erfinv(Wide x) {
  const Wide size = std::abs(x);
  if (size >= 1) return size == 1 ? x * INFINITY : NAN;
  Wide low = 0, high = size < 0.1L ? size : 5;
  for (int step = 0; step < 80; ++step) {
    const Wide y = (low + high) / 2;
    const bool is_above = size > 0.5L ? std::erfc(y) < 1 - size : std::erf(y) > size;
    (is_above ? high : low) = y;
  }
  return std::copysign(low, x);
}

// A row's value and slope, its kinks and zeros, and what Vulkan asks for where that is more than 8
// units in the last place.
struct RowOracle {
  Wide (*value)(Wide);
  Wide (*slope)(Wide);
  std::vector<Wide> near = {};
  double (*vulkan)(Wide) = [](Wide) { return 8.0; };
  double elsewhere = 4;
};

std::vector<Wide> quarter_turns() {
  std::vector<Wide> all;
  for (int k = 1; k < 40; ++k) all.push_back(k * wide_pi / 2);
  for (const int k : {645, 5215, 71000, 1 << 20, 683565276, 683565277})
    all.push_back(k * wide_pi / 2);
  return all;
}

// pow is exp2(y log2(x)) there, with 3 + 2 |y log2(x)| units, and the error of its logarithm.
double vulkan_pow(Wide x) {
  return static_cast<double>(16 + 12 * std::abs(std::log2(x)));
}

const std::map<std::string, RowOracle>& oracles() {
  using std::abs, std::cos, std::cosh, std::exp, std::sin, std::sqrt, std::tan, std::tanh;
  constexpr auto none = [](Wide) -> Wide { return 0; };
  static const std::map<std::string, RowOracle> all = {
      {"neg", {[](Wide x) { return -x; }, [](Wide) -> Wide { return -1; }}},
      {"abs", {[](Wide x) { return abs(x); }, [](Wide x) -> Wide { return (x > 0) - (x < 0); }}},
      {"exp", {[](Wide x) { return exp(x); }, [](Wide x) { return exp(x); }}},
      {"log", {[](Wide x) { return std::log(x); }, [](Wide x) { return 1 / x; }, {1}}},
      {"sqrt", {[](Wide x) { return sqrt(x); }, [](Wide x) { return 1 / (2 * sqrt(x)); }}},
      {"rsqrt",
       {.value = [](Wide x) { return 1 / sqrt(x); },
        .slope = [](Wide x) { return -1 / (2 * x * sqrt(x)); },
        .elsewhere = 6}},
      {"square", {[](Wide x) { return x * x; }, [](Wide x) { return 2 * x; }}},
      {"relu", {[](Wide x) { return x > 0 ? x : 0; }, [](Wide x) -> Wide { return x > 0; }}},
      {"sigmoid", {wide_sigmoid, [](Wide x) { return 1 / ((1 + exp(x)) * (1 + exp(-x))); }}},
      {"tanh", {[](Wide x) { return tanh(x); }, [](Wide x) { return 1 / (cosh(x) * cosh(x)); }}},
      {"silu",
       {[](Wide x) { return x / (1 + exp(-x)); },
        [](Wide x) { return wide_sigmoid(x) * (1 + x * wide_sigmoid(-x)); },
        {-1.27846454276107379511L}}},
      {"gelu",
       {[](Wide x) { return x * std::erfc(-x / sqrt(2.0L)) / 2; },
        [](Wide x) { return std::erfc(-x / sqrt(2.0L)) / 2 + x * wide_phi(x); },
        {-0.75179152469356445746L}}},
      {"gelu_tanh",
       {[](Wide x) { return x / (1 + exp(-wide_gelu_tanh(x))); },
        [](Wide x) {
          const Wide u = wide_gelu_tanh(x), s = wide_sigmoid(u), rest = wide_sigmoid(-u);
          return s + x * s * rest * 2 * sqrt(2 / wide_pi) * (1 + 3 * 0.044715L * x * x);
        },
        {-0.75246142207101625849L}}},
      {"affine",
       {[](Wide x) { return row_a * x + row_b; },
        [](Wide) -> Wide { return row_a; },
        {-Wide{row_b} / row_a}}},
      {"clamp",
       {[](Wide x) { return wide_bound(x, row_a, row_b); },
        [](Wide x) -> Wide { return x >= row_a && x <= row_b; },
        {row_a, row_b}}},
      {"pow_scalar",
       {[](Wide x) { return std::pow(x, Wide{row_a}); },
        [](Wide x) { return row_a * std::pow(x, Wide{row_a} - 1); },
        {},
        vulkan_pow}},
      {"leaky_relu",
       {[](Wide x) { return x > 0 ? x : row_a * x; },
        [](Wide x) -> Wide { return x > 0 ? 1 : row_a; }}},
      {"elu",
       {[](Wide x) { return x > 0 ? x : row_a * std::expm1(x); },
        [](Wide x) -> Wide { return x > 0 ? 1 : row_a * exp(x); }}},
      {"softplus", {wide_softplus, wide_sigmoid}},
      {"sin", {[](Wide x) { return sin(x); }, [](Wide x) { return cos(x); }, quarter_turns()}},
      {"cos", {[](Wide x) { return cos(x); }, [](Wide x) { return -sin(x); }, quarter_turns()}},
      {"erf",
       {[](Wide x) { return std::erf(x); },
        [](Wide x) { return 2 / sqrt(wide_pi) * exp(-x * x); }}},
      {"reciprocal", {[](Wide x) { return 1 / x; }, [](Wide x) { return -1 / (x * x); }}},
      {"sign", {[](Wide x) -> Wide { return (x > 0) - (x < 0); }, none}},
      {"floor", {[](Wide x) { return std::floor(x); }, none, {1, 2, -1}}},
      {"ceil", {[](Wide x) { return std::ceil(x); }, none, {1, 2, -1}}},
      {"hardtanh",
       {[](Wide x) { return wide_bound(x, -1, 1); }, [](Wide x) -> Wide { return abs(x) < 1; }}},
      {"log1p", {[](Wide x) { return std::log1p(x); }, [](Wide x) { return 1 / (1 + x); }, {-1}}},
      {"expm1", {[](Wide x) { return std::expm1(x); }, [](Wide x) { return exp(x); }}},
      {"tan",
       {[](Wide x) { return tan(x); }, [](Wide x) { return 1 / (cos(x) * cos(x)); },
        quarter_turns()}},
      {"round", {[](Wide x) { return std::nearbyint(x); }, none, {0.5L, 1.5L, -2.5L}}},
      {"trunc", {[](Wide x) { return std::trunc(x); }, none, {1, -1}}},
      {"erfinv",
       {wide_erfinv,
        [](Wide x) { return sqrt(wide_pi) / 2 * exp(wide_erfinv(x) * wide_erfinv(x)); },
        {1, -1}}},
      {"softsign",
       {[](Wide x) { return x / (1 + abs(x)); },
        [](Wide x) { return 1 / ((1 + abs(x)) * (1 + abs(x))); }}},
      {"hardsigmoid",
       {[](Wide x) { return wide_bound((x + 3) / 6, 0, 1); },
        [](Wide x) -> Wide { return abs(x) < 3 ? 1 / 6.0L : 0; },
        {-3, 3}}},
      {"hardswish",
       {[](Wide x) { return x * wide_bound((x + 3) / 6, 0, 1); },
        [](Wide x) { return x <= -3  ? 0
                            : x >= 3 ? 1
                                     : (2 * x + 3) / 6; },
        {-3, -1.5L, 3}}},
      {"mish",
       {[](Wide x) { return x * tanh(wide_softplus(x)); },
        [](Wide x) {
          const Wide y = wide_softplus(x);
          return tanh(y) + x * wide_sigmoid(x) / (cosh(y) * cosh(y));
        },
        {-1.19243121451549521214L}}},
      {"selu",
       {[](Wide x) {
          return 1.05070098735548049342L * (x > 0 ? x : 1.67326324235437728482L * std::expm1(x));
        },
        [](Wide x) {
          return 1.05070098735548049342L * (x > 0 ? 1 : 1.67326324235437728482L * exp(x));
        }}},
      {"log_sigmoid",
       {[](Wide x) { return -wide_softplus(-x); }, [](Wide x) { return wide_sigmoid(-x); }}},
  };
  return all;
}

// Numbers of every exponent, more of them where functions bend, and the neighbours of `near`.
std::vector<float> sweep(const std::vector<Wide>& near) {
  std::mt19937 random(5);
  std::vector<float> x;
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    const int count = exponent > 112 && exponent < 136 ? 160 : 12;
    for (int i = 0; i < count; ++i) {
      const uint32_t digits = i == 0 ? 0 : i == 1 ? 0x7fffff : random() & 0x7fffff;
      const auto size = std::bit_cast<float>(exponent << 23 | digits);
      x.push_back(size);
      if (size != 0) x.push_back(-size);  // nothing promises the sign of a zero
    }
  }
  x.push_back(1e20f);
  for (const Wide point : near)
    for (int32_t step = -30; step <= 30; ++step) {
      const auto bits = std::bit_cast<int32_t>(static_cast<float>(point));
      x.push_back(std::bit_cast<float>(bits + step));
      x.push_back(static_cast<float>(point * (1 + 0.01L * step)));
    }
  return x;
}

// How a device may differ: Vulkan's denormals may count as zeros.
struct Precision {
  std::string device;
  bool is_vulkan = false;

  // The distance from the true value in units in the last place of it, or of `scale`.
  double units(float y, Wide expected, Wide scale = 0) const {
    const auto rounded = static_cast<float>(expected);
    if (std::isnan(rounded) || std::isnan(y)) return std::isnan(rounded) == std::isnan(y) ? 0 : 1e9;
    const Wide size = std::max(std::abs(expected), std::abs(scale)), most = 3.402823466e38L;
    if (std::isinf(y)) return size > 0.999999L * most && (y > 0) == (expected > 0) ? 0 : 1e9;
    if (std::isinf(rounded)) return std::abs(y) > 0.999999L * most ? 0 : 1e9;
    const int exponent = size > 0 ? std::max(std::ilogb(size), -126) : -126;
    const Wide error = std::abs(y - expected);
    if (is_vulkan && error <= 0x1p-124L) return 0;  // a part of the value may be such a denormal
    return static_cast<double>(error / std::ldexp(Wide{1}, exponent - 23));
  }
};

// The worst of many elements.
struct Worst {
  double share = 0;
  std::string text;
  void see(double units, double bound, const std::string& what, float x, float y, Wide expected) {
    if (units / bound <= share) return;
    share = units / bound;
    text = fmt::format("{} of {:.9g}: {:.9g}, not {:.9g}: {:.3g} units of {:.3g}", what, x, y,
                       static_cast<double>(expected), units, bound);
  }
  void check(const std::string& device) const { CHECK_MESSAGE(share <= 1, device << ": " << text); }
};

enum class Saved { SAVE_NONE, SAVE_X, SAVE_Y };
struct AccurateRow {
  uint32_t id;
  const char* name;
  Saved saves;
};
constexpr AccurateRow accurate_rows[] = {
#define UNARY(id, name, forward, grad, saves, lo, hi) {id, #name, Saved::saves},
#include "shaders/elementwise.def"
};
enum AccuratePair : uint32_t {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) accurate_##name = id,
#include "shaders/elementwise.def"
};

struct RowPoints {
  std::vector<float> x;
  std::vector<Wide> value, slope;
};
const RowPoints& accurate_points(const AccurateRow& row) {
  static std::map<uint32_t, RowPoints> all;
  RowPoints& points = all[row.id];
  if (!points.x.empty()) return points;
  const RowOracle& oracle = oracles().at(row.name);
  points.x = sweep(oracle.near);
  for (const float x : points.x) {
    points.value.push_back(oracle.value(x));
    points.slope.push_back(oracle.slope(x));
  }
  return points;
}

std::array<uint32_t, 3> flat_of(size_t n) {
  return {static_cast<uint32_t>((n + REWIND_FLAT - 1) / REWIND_FLAT), 1, 1};
}

void check_accurate_row(KernelRunner& runner, const Precision& precision, const AccurateRow& row) {
  const RowOracle& oracle = oracles().at(row.name);
  const RowPoints& points = accurate_points(row);
  const auto n = static_cast<uint32_t>(points.x.size());
  const Binding x = runner.upload(points.x), y = runner.allocate(n), dx = runner.allocate(n),
                dy = runner.upload(std::vector<float>(n, 1.0f));
  runner.run("unary", {x, y}, UnaryParams{.offset = {}, .n = n, .a = row_a, .b = row_b},
             {row.id, 1}, flat_of(n));
  runner.run("unary_grad", {row.saves == Saved::SAVE_Y ? y : x, dy, dx},
             UnaryGradParams{.offset = {}, .n = n, .a = row_a, .b = row_b}, {row.id}, flat_of(n));
  const std::vector<float> values = runner.download(y), slopes = runner.download(dx);
  Worst worst;
  for (uint32_t i = 0; i < n; ++i) {
    const float at = points.x[i];
    if (precision.is_vulkan && at != 0 && std::abs(at) < 0x1p-126f) continue;
    const double bound = precision.is_vulkan ? oracle.vulkan(at) : oracle.elsewhere;
    // Vulkan rounds the product first.
    const bool is_rounded = precision.is_vulkan && std::string(row.name) == "affine";
    worst.see(precision.units(values[i], points.value[i], is_rounded ? row_b : 0), bound, row.name,
              at, values[i], points.value[i]);
    worst.see(precision.units(slopes[i], points.slope[i]), bound,
              std::string("gradient of ") + row.name, at, slopes[i], points.slope[i]);
  }
  worst.check(precision.device);
}

// logaddexp for numbers of all sizes, and where the result is nearly 0; pow for real exponents.
void check_pairs(KernelRunner& runner, const Precision& precision) {
  std::vector<float> x = sweep({}), y = x;
  std::shuffle(y.begin(), y.end(), std::mt19937(3));
  for (float& v : y) v = std::abs(v) > 1e3f ? std::fmod(v, 90.0f) : v;
  for (int i = 1; i < 2000; ++i) {
    const float high = -0.6931f * static_cast<float>(i) / 2000;
    x.push_back(high);
    y.push_back(static_cast<float>(std::log(-std::expm1(Wide{high}))));
  }
  const auto n = static_cast<uint32_t>(x.size());
  const Binding a = runner.upload(x), b = runner.upload(y), c = runner.allocate(n);
  const auto run = [&](uint32_t row) {
    runner.run("binary", {a, b, c}, BinaryParams{.offset = {}, .n = n}, {row, 1}, flat_of(n));
    return runner.download(c);
  };
  const std::vector<float> sums = run(accurate_logaddexp), powers = run(accurate_pow);
  Worst worst;
  for (uint32_t i = 0; i < n; ++i) {
    const Wide high = std::max(x[i], y[i]),
               rest = std::log1p(std::exp(-std::abs(Wide{x[i]} - y[i])));
    // Doubles hold the terms, but not the least of their differences.
    const Wide scale = precision.is_vulkan ? std::abs(high) : 1e-7L;
    worst.see(precision.units(sums[i], high + rest, scale), precision.is_vulkan ? 8 : 4,
              fmt::format("logaddexp with {}", y[i]), x[i], sums[i], high + rest);
    const Wide power = std::pow(Wide{x[i]}, Wide{y[i]});
    if (precision.is_vulkan && (std::abs(x[i]) < 0x1p-126f || std::abs(y[i]) < 0x1p-126f)) continue;
    worst.see(precision.units(powers[i], power),
              precision.is_vulkan
                  ? 16 + 12 * std::abs(y[i] * std::log2(std::abs(x[i]))) + 6 * std::abs(y[i])
                  : 4,
              fmt::format("power of {}", y[i]), x[i], powers[i], power);
  }
  worst.check(precision.device);
}

// The loss of logits with targets 0 and 1, and with a weight of 3 for the positive class.
void check_logits(KernelRunner& runner, const Precision& precision) {
  const std::vector<float> x = sweep({});
  const auto n = static_cast<uint32_t>(x.size());
  const Binding logits = runner.upload(x), y = runner.allocate(n), dx = runner.allocate(n),
                dy = runner.upload({1}), weight = runner.upload({3});
  for (const float target : {0.0f, 1.0f})
    for (const uint32_t is_weighted : {0u, 1u}) {
      const Binding targets = runner.upload(std::vector<float>(n, target));
      runner.run("pair_loss", {logits, targets, weight, y},
                 PairLossParams{.offset = {}, .n = n, .period = 1}, {LOSS_BCE_LOGITS, is_weighted},
                 flat_of(n));
      runner.run("pair_loss_grad", {logits, targets, weight, dy, dx},
                 PairLossParams{.offset = {}, .n = n, .period = 1, .dy_one = 1},
                 {LOSS_BCE_LOGITS, is_weighted, 0}, flat_of(n));
      const std::vector<float> losses = runner.download(y), slopes = runner.download(dx);
      const Wide share = target == 1 && is_weighted != 0 ? 3 : 1, sign = target == 1 ? -1 : 1;
      Worst worst;
      for (uint32_t i = 0; i < n; ++i) {
        if (precision.is_vulkan && std::abs(x[i]) < 0x1p-126f) continue;
        const Wide loss = share * wide_softplus(sign * x[i]),
                   slope = share * sign * wide_sigmoid(sign * x[i]);
        const double bound = precision.is_vulkan ? 8 : 4;
        worst.see(precision.units(losses[i], loss), bound, "loss of logits", x[i], losses[i], loss);
        worst.see(precision.units(slopes[i], slope), bound, "its slope", x[i], slopes[i], slope);
      }
      worst.check(precision.device);
    }
}

void check_accuracy(std::unique_ptr<Backend> backend, const Precision& precision) {
  KernelRunner runner(std::move(backend));
  for (const AccurateRow& row : accurate_rows) check_accurate_row(runner, precision, row);
  check_pairs(runner, precision);
  check_logits(runner, precision);
}

}  // namespace

TEST_CASE("elementwise accuracy: the reference, in f32 and in f64" * doctest::test_suite("host")) {
  check_accuracy(make_reference_backend(), {"reference"});
  check_accuracy(std::make_unique<F64Backend>(), {"reference in f64"});
}

TEST_CASE("elementwise accuracy: the loops of cpu" * doctest::test_suite("host")) {
  at_each_level([](std::string_view level) {
    check_accuracy(make_cpu_backend(), {fmt::format("cpu {}", level)});
  });
}

TEST_CASE("elementwise accuracy: vulkan") {
  std::unique_ptr<Backend> backend;
  try {
    backend = open_backend("vulkan");
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  check_accuracy(std::move(backend), {"vulkan", true});
}

}  // namespace rw::test
