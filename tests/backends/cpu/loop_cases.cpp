#include "tests/backends/cpu/loop_cases.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/work.h"
#include "backends/reference/reference_backend.h"
#include "tests/backends/cpu/thread_count.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/kernel_runner.h"

namespace rw::test {

namespace {

constexpr float loop_specials[] = {NAN,    infinity, -infinity, 0.0f, -0.0f,
                                   1e-41f, 3e-6f,    60000.0f,  -1e8f};

std::vector<float> argument_values(const LoopArgument& argument, uint64_t seed) {
  if (argument.fill == Fill::given) return argument.values;
  std::mt19937 random(static_cast<uint32_t>(seed));
  // At least one, since no block is empty.
  std::vector<float> values(std::max<uint64_t>(1, argument.count));
  for (size_t i = 0; i < values.size(); ++i) {
    const float u = static_cast<float>(random() >> 8) * 0x1p-24f;
    switch (argument.fill) {
      case Fill::positive:
        values[i] = 0.1f + 3.9f * u;
        break;
      case Fill::bits:
        values[i] = u < 0.5f ? 0.0f : 1.0f;
        break;
      default:
        values[i] = is_float(argument.dtype) ? 6 * u - 3 : std::floor(200 * u) - 100;
    }
    if (argument.fill == Fill::specials && i % 5 == 2) values[i] = loop_specials[i / 5 % 9];
  }
  return values;
}

// Returns all bindings after the call.
std::vector<std::vector<float>> loop_results(std::unique_ptr<Backend> backend, const LoopCase& c,
                                             std::span<const std::byte> params) {
  KernelRunner runner(std::move(backend));
  std::vector<Binding> bindings;
  for (const LoopArgument& argument : c.arguments)
    bindings.push_back(
        runner.upload(argument_values(argument, bindings.size() + 1), argument.dtype));
  KernelCall call;
  call.kernel = c.kernel;
  call.bindings = bindings;
  call.params = params;
  call.variant = c.variant;
  run_with_workspace(runner.backend(), call);
  std::vector<std::vector<float>> all;
  for (const Binding& binding : bindings) all.push_back(runner.download(binding));
  return all;
}

double loop_tolerance(const LoopCase& c, DType dtype) {
  return dtype == DType::f16 ? 0x1p-10 : dtype == DType::bf16 ? 0x1p-7 : c.tolerance;
}

bool agrees(float a, float b, double tolerance, double scale) {
  if (std::isnan(b)) return std::isnan(a);
  if (std::isinf(b)) return a == b;
  return std::abs(double{a} - b) <= tolerance * (std::abs(b) + scale) + 1e-37;
}

// Returns the root of the mean square of values that are not special.
double loop_scale(const std::vector<float>& values) {
  double squares = 0, count = 0;
  for (const float v : values)
    if (std::abs(v) < 1e3f) squares += double{v} * v, ++count;
  return count > 0 ? std::sqrt(squares / count) : 0;
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (size_t k = 0; k < a.size(); ++k)
    if (std::memcmp(a[k].data(), b[k].data(), a[k].size() * sizeof(float)) != 0) return false;
  return true;
}

}  // namespace

void at_each_level(const std::function<void(std::string_view level)>& body) {
  std::string without;
  for (const cpu::Level& level : cpu::levels()) {
    const Env env("REWIND_WITHOUT", env_text("REWIND_WITHOUT") + without);
    body(level.name);
    without += fmt::format(",{}", level.name);
  }
}

void check_loop(const LoopCase& c, std::span<const std::byte> params) {
  const auto expected = loop_results(make_reference_backend(), c, params);
  at_each_level([&](std::string_view level) {
    REQUIRE_MESSAGE(cpu::Loops().find(c.kernel), c.kernel);
    const auto got = loop_results(make_cpu_backend(), c, params);
    for (const int threads : {1, 3}) {
      const ThreadCount in_force(threads);
      CHECK_MESSAGE(same_bits(got, loop_results(make_cpu_backend(), c, params)), c.kernel, " with ",
                    threads, " threads");
    }
    for (size_t k = 0; k < got.size(); ++k) {
      const DType dtype = c.arguments[k].dtype;
      const double tolerance = loop_tolerance(c, dtype), scale = loop_scale(expected[k]);
      size_t wrong = 0, first = 0;
      for (size_t i = got[k].size(); i-- > 0;)
        if (!agrees(got[k][i], expected[k][i], tolerance, scale)) ++wrong, first = i;
      if (wrong > 0)
        FAIL_CHECK(
            fmt::format("{} {} of {}, {}: binding {} has {} of {} wrong; element {} is {}, not {}",
                        c.kernel, fmt::join(c.variant, " "), name(dtype), level, k, wrong,
                        got[k].size(), first, got[k][first], expected[k][first]));
    }
  });
}

}  // namespace rw::test
