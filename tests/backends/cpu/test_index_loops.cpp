// The vector loops of the device cpu that find elements by numbers and places, compared with those
// of the reference.
#include <doctest/doctest.h>

#include <algorithm>

#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

// Returns `count` numbers from -1 to `rows`, so that two values are outside.
LoopArgument row_numbers(uint64_t count, int rows) {
  std::vector<float> all;
  for (uint64_t i = 0; i < count; ++i)
    all.push_back(
        static_cast<float>(static_cast<int>(i * i * 7 % static_cast<uint64_t>(rows + 2)) - 1));
  return {count, DType::i32, Fill::given, all};
}

LoopArgument sorted(LoopArgument a) {
  std::sort(a.values.begin(), a.values.end());
  return a;
}

// Returns each number below `count` once.
LoopArgument permutation(uint64_t count, uint64_t step) {
  std::vector<float> all;
  for (uint64_t i = 0; i < count; ++i) all.push_back(static_cast<float>(i * step % count));
  return {count, DType::i32, Fill::given, all};
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu index loops: rows gathered and put, numbers of flat elements") {
  for (const uint32_t width : {1u, 37u, 1500u}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
      check_loop({"gather", {{50 * width, dtype}, row_numbers(203, 50), {203 * width, dtype}}},
                 RowsParams{.n = 203, .width = width, .rows = 50});
    for (const auto& [from, to] : {std::pair{DType::f32, DType::f32},
                                   {DType::f16, DType::f32},
                                   {DType::bf16, DType::f32},
                                   {DType::i32, DType::i32}})
      for (const uint32_t unique : {0u, 1u})
        check_loop({"scatter_put",
                    {{101 * width, from},
                     permutation(101, unique ? 7 : 0),
                     {101, DType::i32, Fill::given, permutation(101, 1).values},
                     {101 * width, to}},
                    {unique}},
                   RowsParams{.n = unique ? 101u : 2u, .width = width, .rows = 90});
  }
  for (const uint32_t shared : {0u, 1u}) {
    const uint32_t inner = shared ? 1 : 5;
    check_loop(
        {"flat_index", {row_numbers(3 * 40 * inner, 30), {3 * 40 * inner, DType::i32}}, {shared}},
        FlatIndexParams{{}, 3 * 40 * inner, 40, inner, 30});
  }
}

TEST_CASE("cpu index loops: a stable sort") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
    for (const uint32_t descending : {0u, 1u}) {
      const Fill fill = is_float(dtype) ? Fill::specials : Fill::numbers;
      for (const uint32_t count : {1u, 33u, 1000u})
        check_loop({"sort_blocks",
                    {{3 * count, dtype, fill}, {3 * count, DType::i32}, {3 * count, DType::i32}}},
                   SortParams{.n = 3 * count, .count = count, .descending = descending});
    }
  for (const uint32_t run : {1u, 32u, 10000u}) {
    const uint32_t count = 25000;
    std::vector<float> runs;
    for (uint32_t line = 0; line < 2; ++line)
      for (uint32_t first = 0; first < count; first += run) {
        const uint32_t size = std::min(run, count - first);
        const std::vector<float> one = sorted(row_numbers(size, 1000)).values;
        runs.insert(runs.end(), one.begin(), one.end());
      }
    for (float& key : runs) key += 1;  // keys have no sign
    const uint32_t n = 2 * count;
    check_loop(
        {"sort_merge",
         {{n, DType::i32, Fill::given, runs}, permutation(n, 1), {n, DType::i32}, {n, DType::i32}}},
        SortParams{.n = n, .count = count, .run = run});
  }
  const LoopArgument keys = sorted(row_numbers(5000, 700));
  check_loop({"sorted_lasts", {keys, permutation(5000, 3), {5000, DType::i32}}},
             SortParams{.n = 5000});
}

TEST_CASE("cpu index loops: rows added up in the order of a sort, in chunks") {
  for (const auto& [from, to] : {std::pair{DType::f32, DType::f32},
                                 {DType::f16, DType::f32},
                                 {DType::bf16, DType::f32},
                                 {DType::i32, DType::i32}})
    for (const uint32_t width : {1u, 70u, 1100u})
      for (const int rows : {5, 150})
        for (const uint32_t in_order : {0u, 1u}) {
          const uint32_t n = 330, opens = 2 * ((n + SCATTER_CHUNK - 1) / SCATTER_CHUNK);
          const RowsParams p{{}, n, width, static_cast<uint32_t>(rows), 0};
          const Fill nothing = Fill::bits;
          check_loop({"scatter_add",
                      {{n * width, from},
                       sorted(row_numbers(n, rows)),
                       permutation(n, 7),
                       {static_cast<uint64_t>(rows) * width, to},
                       {opens * width, to, nothing},
                       {opens, DType::i32}},
                      {in_order}},
                     p);
        }
}

TEST_SUITE_END();
