// The vector loops of the device cpu, compared with those of the reference in every kernel, dtype
// and level.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <random>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/loops.h"
#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/kernel_runner.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

constexpr DType all_dtypes[] = {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8};
constexpr uint32_t flat_sizes[] = {0, 1, 7, 1023, 50000};

struct LoopRow {
  uint32_t id;
  const char* name;
};
constexpr LoopRow unary_loops[] = {
#define UNARY(id, name, forward, grad, saves, lo, hi) {id, #name},
#include "shaders/elementwise.def"
};
constexpr LoopRow binary_loops[] = {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) {id, #name},
#include "shaders/elementwise.def"
};
constexpr LoopRow compare_loops[] = {
#define COMPARE(id, name, forward) {id, #name},
#include "shaders/elementwise.def"
};
constexpr uint32_t logaddexp_row = 9;  // not for integers

bool is_int(DType dtype) {
  return !is_float(dtype);
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE(
    "cpu loops: levels that are taken away leave the next lower one, and then the reference") {
  std::vector<std::string> levels;
  at_each_level([&](std::string_view level) {
    levels.emplace_back(level);
    CHECK(cpu::Loops().level() == level);
  });
  const Env none("REWIND_WITHOUT", fmt::format("{}", fmt::join(levels, ",")));
  CHECK(cpu::Loops().level().empty());
  CHECK_FALSE(cpu::Loops().find("fill"));
  KernelRunner cpu(make_cpu_backend());
  const Binding y = cpu.allocate(3);
  cpu.run("fill", {y}, FillParams{{}, 3, 0x40000000u});
  CHECK(cpu.download(y) == std::vector<float>{2, 2, 2});
}

TEST_CASE("cpu loops: unary rows and their gradients") {
  for (const LoopRow& row : unary_loops)
    for (const DType dtype : floats)
      for (const Fill fill : {Fill::numbers, Fill::specials}) {
        CAPTURE(row.name);
        const uint32_t n = 1100;
        const UnaryParams p{.offset = {1, 0}, .n = n, .a = 0.7f, .b = 1.9f};
        check_loop({"unary", {{n + 1, dtype, fill}, {n, dtype}}, {row.id, 1}}, p);
        const UnaryGradParams grad{.offset = {0, 2, 1}, .n = n, .a = 0.7f, .b = 1.9f};
        check_loop({"unary_grad", {{n, dtype, fill}, {n + 2, dtype}, {n + 1, dtype}}, {row.id}},
                   grad);
      }
}

TEST_CASE("cpu loops: results larger than caches, wherever they begin") {
  constexpr uint32_t n = (8 << 20) + 1005;
  std::vector<float> values(n);
  for (uint32_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 4099);
  at_each_level([&](std::string_view level) {
    KernelRunner cpu(make_cpu_backend());
    const Binding x = cpu.upload(values);
    for (const uint32_t begin : {0u, 3u}) {
      const Binding y = cpu.allocate(begin + n);
      cpu.run("unary", {x, y}, UnaryParams{.offset = {0, begin}, .n = n}, {0, 1});
      const std::vector<float> negated = cpu.download(y);
      size_t wrong = 0;
      for (uint32_t i = 0; i < n; ++i) wrong += negated[begin + i] != -values[i];
      CHECK_MESSAGE(wrong == 0, level, " from ", begin);
    }
  });
}

TEST_CASE("cpu loops: an element has the same bits in a vector, behind the last one and alone") {
  at_each_level([](std::string_view level) {
    KernelRunner cpu(make_cpu_backend());
    std::vector<float> values;
    for (int i = 0; i < 300; ++i) values.push_back(0.01f * static_cast<float>(i) - 1.5f);
    for (const LoopRow& row : unary_loops)
      for (const DType dtype : floats) {
        const Binding x = cpu.upload(values, dtype), y = cpu.allocate(300, dtype),
                      one = cpu.allocate(1, dtype);
        cpu.run("unary", {x, y}, UnaryParams{.offset = {}, .n = 300, .a = 0.7f, .b = 1.9f},
                {row.id, 1});
        const std::vector<float> together = cpu.download(y);
        for (uint32_t i = 0; i < 300; i += 13) {
          cpu.run("unary", {x, one}, UnaryParams{.offset = {i, 0}, .n = 1, .a = 0.7f, .b = 1.9f},
                  {row.id, 1});
          const float alone = cpu.download(one)[0];
          CHECK_MESSAGE((alone == together[i] || (std::isnan(alone) && std::isnan(together[i]))),
                        level, " ", row.name);
        }
      }
  });
}

TEST_CASE("cpu loops: casts have the bits of the scalar ones") {
  const uint32_t n = 1 << 16;
  std::mt19937 random(1);
  std::vector<float> values(n);
  std::vector<uint16_t> halves(n);
  for (uint32_t i = 0; i < n; ++i) {
    // Covers the exponents that f16 has and some beyond, with random digits or halfway between two
    // f16 values.
    const auto bits = static_cast<uint32_t>(random()), exponent = 95 + i % 50;
    const uint32_t digits = i % 3 == 0 ? (bits & 0x7fe000u) | 0x1000u : bits & 0x7fffffu;
    values[i] = std::bit_cast<float>((bits & 0x80000000u) | exponent << 23 | digits);
    halves[i] = static_cast<uint16_t>(i);
  }
  // Values that rounding could carry over into the sign, or to infinity.
  for (uint32_t i = 0; const uint32_t nan : {0x7fffffffu, 0xffffffffu, 0x7f800001u})
    values[i++] = std::bit_cast<float>(nan);
  at_each_level([&](std::string_view level) {
    KernelRunner cpu(make_cpu_backend());
    const CopyParams p{
        .offset = {}, .n = n, .rank = 1, .shape = {n}, .x_stride = {1}, .y_stride = {1}};
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const Binding wide = cpu.upload(values), narrow = cpu.allocate(n, dtype);
      std::vector<uint16_t> bits(n);
      cpu.run("copy", {wide, narrow}, p);
      cpu.backend().read(narrow.range, bits.data());
      size_t wrong = 0;
      for (uint32_t i = 0; i < n; ++i)
        wrong += std::isnan(values[i]) ? !std::isnan(from_16_bits(dtype, bits[i]))
                                       : bits[i] != to_16_bits(dtype, values[i]);
      CHECK_MESSAGE(wrong == 0, level, " to ", name(dtype));

      cpu.backend().write(narrow.range, halves.data());
      cpu.run("copy", {narrow, wide}, p);
      const std::vector<float> widened = cpu.download(wide);
      wrong = 0;
      for (uint32_t i = 0; i < n; ++i) {
        const float expected = from_16_bits(dtype, halves[i]);
        const bool is_same =
            std::bit_cast<uint32_t>(widened[i]) == std::bit_cast<uint32_t>(expected);
        wrong += !is_same && !(std::isnan(widened[i]) && std::isnan(expected));
      }
      CHECK_MESSAGE(wrong == 0, level, " from ", name(dtype));
    }
  });
}

TEST_CASE("cpu loops: binary rows and comparisons in every mode") {
  const uint32_t n = 2 * 3 * 185;
  for (const DType dtype : all_dtypes)
    for (const Fill fill : {Fill::numbers, Fill::specials, Fill::bits})
      for (uint32_t mode = 0; mode < 4; ++mode) {
        const BinaryParams p{.offset = {0, 1, 0},
                             .n = n,
                             .period = 11,
                             .rank = 3,
                             .shape = {2, 3, 185},
                             .a_stride = {555, 0, 3},
                             .b_stride = {0, 185, 1}};
        const LoopArgument a{1200, dtype,
                             is_int(dtype) && fill == Fill::specials ? Fill::numbers : fill};
        const LoopArgument b{1200, dtype, a.fill};
        CAPTURE(mode);
        for (const LoopRow& row : binary_loops)
          if (dtype != DType::u8 && !(dtype == DType::i32 && row.id == logaddexp_row)) {
            CAPTURE(row.name);
            check_loop({"binary", {a, b, {n, dtype}}, {row.id, mode}}, p);
          }
        for (const LoopRow& row : compare_loops) {
          CAPTURE(row.name);
          check_loop({"compare", {a, b, {n, DType::u8}}, {row.id, mode}}, p);
        }
      }
}

TEST_CASE("cpu loops: copies and casts of dense, turned and broadcast views") {
  struct Shape {
    uint32_t rank, shape[4], x[4], y[4];
  };
  constexpr Shape shapes[] = {
      {1, {50000}, {1}, {1}},
      {2, {70, 45}, {1, 70}, {45, 1}},                      // transposed
      {2, {70, 45}, {45, 1}, {1, 70}},                      // the other way round
      {3, {5, 37, 33}, {1221, 1, 37}, {1221, 33, 1}},       // each of five
      {4, {3, 5, 7, 8}, {280, 8, 40, 1}, {280, 56, 8, 1}},  // heads and rows swapped
      {3, {4, 1, 9}, {0, 5, 2}, {9, 3, 1}},
      {3, {6, 7, 100}, {700, 100, 1}, {1500, 150, 1}},  // into a slice
      {2, {0, 5}, {5, 1}, {5, 1}},
      {0, {}, {}, {}}};
  for (const DType from : all_dtypes)
    for (const DType to : all_dtypes)
      for (const Shape& s : shapes) {
        if (is_half(from) && is_half(to) && from != to) continue;  // no kernel sees both
        uint32_t n = 1, last = 0;
        CopyParams p{
            .offset = {2, 3}, .n = 0, .rank = s.rank, .shape = {}, .x_stride = {}, .y_stride = {}};
        uint32_t last_x = 0;
        for (uint32_t d = 0; d < s.rank; ++d) {
          p.shape[d] = s.shape[d], p.x_stride[d] = s.x[d], p.y_stride[d] = s.y[d];
          n *= s.shape[d];
          last += s.shape[d] ? (s.shape[d] - 1) * s.y[d] : 0;
          last_x += s.shape[d] ? (s.shape[d] - 1) * s.x[d] : 0;
        }
        p.n = n;
        const Fill fill = is_float(from) ? Fill::specials : Fill::numbers;
        check_loop({"copy", {{last_x + 3, from, fill}, {last + 4, to}}}, p);
      }
}

TEST_CASE("cpu loops: fill, where, accumulate, random numbers") {
  for (const DType dtype : all_dtypes)
    for (const uint32_t n : flat_sizes) {
      check_loop({"fill", {{n + 1, dtype}}},
                 FillParams{{1}, n, is_int(dtype) ? 0xfffffff0u : 0x40490fdbu});
      const uint32_t shape = n / 2;
      const WhereParams p{.offset = {},
                          .n = 2 * shape,
                          .rank = 2,
                          .shape = {2, shape},
                          .c_stride = {0, 1},
                          .a_stride = {shape, 1},
                          .b_stride = {0, 0}};
      check_loop({"where",
                  {{n + 1, DType::u8, Fill::bits}, {n + 1, dtype}, {n + 1, dtype}, {n + 1, dtype}}},
                 p);
      if (is_int(dtype)) continue;
      check_loop({"accumulate", {{n, dtype}, {n}}}, AccumulateParams{{}, n, 0.3f});
      const DropoutParams d{{}, n, 0.75f, 11, 22, 0xfffffff0u, 3};
      check_loop({"dropout", {{n, dtype}, {n, dtype}}, {}, 0}, d);
      for (const uint32_t is_normal : {0u, 1u})
        check_loop({"random", {{n, dtype}}, {is_normal}, is_normal ? 2e-6 : 0},
                   RandomParams{{}, n, -1, 2, 5, 6, 0xffffffff, 7});
    }
}

TEST_CASE("cpu loops: reductions along rows, columns and one long row") {
  struct Shape {
    uint32_t outer, count, inner;
  };
  constexpr Shape shapes[] = {{1, 1, 1},   {2, 40000, 1}, {70, 16, 1},  {37, 5, 1},
                              {19, 70, 1}, {3, 1500, 1},  {1, 3000, 5}, {1, 150, 700},
                              {4, 33, 5},  {0, 4, 1},     {17, 1100, 1}};
  for (const DType from : {DType::f32, DType::f16, DType::bf16, DType::i32})
    for (const DType to : {DType::f32, from})
      for (const Shape& s : shapes)
        for (uint32_t op = 0; op < 4; ++op)
          for (const Fill fill : {Fill::numbers, Fill::specials}) {
            if (from == DType::i32 && (to != from || fill == Fill::specials || op == 3)) continue;
            if (op == 3 && (fill == Fill::specials || s.count > 70))
              continue;  // its overflow depends on the order
            CAPTURE(s.outer);
            CAPTURE(s.count);
            CAPTURE(s.inner);
            const uint32_t n = s.outer * s.count * s.inner, results = s.outer * s.inner;
            const ReduceParams p{{1, 0},  s.outer, s.count,
                                 s.inner, s.count, from == DType::i32 ? 1.0f : 0.25f};
            check_loop(
                {"reduce", {{n + 1, from, fill}, {results, to}}, {op}, op == 3 ? 1e-4 : 4e-6}, p);
            if (op < 2)
              check_loop({"argreduce", {{n, from, fill}, {results, DType::i32}}, {op}},
                         ReduceParams{.outer = s.outer, .count = s.count, .inner = s.inner});
          }
}

TEST_CASE("cpu loops: the first of equal places of rows of several blocks, and NaN") {
  LoopArgument rows{4 * 3000, f32, Fill::given, std::vector<float>(4 * 3000, -1)};
  const auto at = [&](size_t row, size_t i) -> float& { return rows.values[row * 3000 + i]; };
  at(0, 1700) = at(0, 1900) = at(0, 2900) = 5;
  at(1, 300) = 7, at(1, 1500) = at(1, 2999) = NAN;
  at(2, 500) = -9, at(2, 1100) = at(2, 2100) = -9;
  at(3, 0) = 2, at(3, 1024) = 2;
  for (const DType dtype : {f32, DType::f16})
    for (const uint32_t is_min : {0u, 1u}) {
      rows.dtype = dtype;
      check_loop({"argreduce", {rows, {4, DType::i32}}, {is_min}},
                 ReduceParams{.outer = 4, .count = 3000, .inner = 1});
    }
}

TEST_CASE("cpu loops: scans in parts, with what comes before them") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32})
    for (uint32_t op = 0; op < (dtype == DType::i32 ? 2 : 3); ++op)
      for (const uint32_t reverse : {0u, 1u})
        for (const auto& [carry, totals] : {std::pair{0u, 0u}, {1u, 0u}, {0u, 1u}}) {
          const DType sums = dtype == DType::i32 ? dtype : DType::f32;
          const DType result = totals ? sums : dtype;
          const ScanParams p{{}, 3, 25, 7, 10, 3, reverse};
          const Fill fill = dtype == DType::i32 ? Fill::bits : Fill::numbers;
          check_loop({"scan",
                      {{525, dtype, fill}, {63, sums, fill}, {525, result, fill}},
                      {op, carry, totals},
                      4e-6},
                     p);
        }
}

TEST_SUITE_END();
