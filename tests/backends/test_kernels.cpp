// Compares every Vulkan kernel with the reference backend: dtypes, sizes, offsets, guard bytes.
#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/fixtures/compare_kernels.h"
#include "tests/fixtures/element_bytes.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kernel_sizes[] = {0, 1, 7, 8, 513, 20000};
constexpr DType all_types[] = {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8};

uint32_t flat(uint32_t n) {
  return (n + REWIND_FLAT - 1) / REWIND_FLAT;
}

std::vector<float> operands_of(DType t, uint32_t n, uint32_t seed) {
  return t == DType::u8    ? integers(n, 0, 4, seed)
         : t == DType::i32 ? integers(n, -9, 9, seed)
                           : values(n, -2, 2, seed);
}

// Returns for every output of a max pool an input position inside its window.
std::vector<float> taps_in_windows(const PoolParams& p) {
  std::vector<float> chosen;
  const uint32_t taps = p.kernel_h * p.kernel_w;
  for (uint32_t i = 0; i < p.batch * p.out_h * p.out_w * p.channels; ++i) {
    const uint32_t ow = i / p.channels % p.out_w, oh = i / p.channels / p.out_w % p.out_h;
    for (uint32_t tap = i * 7 % taps;; tap = (tap + 1) % taps) {
      const uint32_t h = oh * p.stride_h + tap / p.kernel_w * p.dilation_h - p.pad_h;
      const uint32_t w = ow * p.stride_w + tap % p.kernel_w * p.dilation_w - p.pad_w;
      if (h >= p.in_h || w >= p.in_w) continue;
      chosen.push_back(static_cast<float>(tap));
      break;
    }
  }
  return chosen;
}

}  // namespace

TEST_CASE("kernels: copy") {
  KernelComparison& devices = KernelComparison::instance();
  for (DType from : all_types)
    for (DType to : all_types) {
      if (is_half(from) && is_half(to) && from != to) continue;  // such casts go by way of f32
      const bool unsigned_only = to == DType::u8 || from == DType::u8;
      for (uint32_t n : kernel_sizes) {
        const auto x = unsigned_only ? integers(n, 0, 200) : values(n, -100, 100);
        devices.run("copy", {in(from, x), out(to, n)},
                    CopyParams{.n = n, .rank = 1, .shape = {n}, .x_stride = {1}, .y_stride = {1}},
                    {}, {1});
      }
      // x is [3, 5, 7] read as a transpose, y is written with gaps.
      devices.run("copy", {in(from, integers(105, 0, 90)), inout(to, integers(210, 0, 90))},
                  CopyParams{.n = 105,
                             .rank = 3,
                             .shape = {3, 5, 7},
                             .x_stride = {1, 21, 3},
                             .y_stride = {70, 14, 2}},
                  {0}, {105});
    }
}

TEST_CASE("kernels: unary and unary_grad") {
  KernelComparison& devices = KernelComparison::instance();
  struct Row {
    uint32_t id;
    const char* name;
    float lo, hi;
  };
  constexpr Row rows[] = {
#define UNARY(id, name, forward, grad, saves, lo, hi) {id, #name, lo, hi},
#include "shaders/elementwise.def"
  };
  for (const Row& row : rows)
    for (DType t : floats)
      for (uint32_t n : {13u, 2000u}) {
        INFO(row.name);
        devices.tolerance = 2e-5;
        const auto x = values(n, row.lo, row.hi), dy = values(n, -1, 1, 2);
        devices.run("unary", {in(t, x), out(t, n)}, UnaryParams{.n = n, .a = 0.3f, .b = 1.5f},
                    {row.id, 1}, {flat(n)});
        devices.run("unary_grad", {in(t, x), in(t, dy), out(t, n)},
                    UnaryGradParams{.n = n, .a = 0.3f, .b = 1.5f}, {row.id}, {flat(n)});
      }
  for (DType t : floats) {
    devices.run("unary", {in(t, values(40)), out(t, 24)},
                UnaryParams{.n = 24, .rank = 2, .shape = {4, 6}, .x_stride = {1, 5}}, {0, 0}, {24});
    devices.run("unary", {in(t, {nan_value, infinity, -infinity, -1, 2}), out(t, 5)},
                UnaryParams{.n = 5}, {7, 1}, {1});
    for (float power : {0.0f, 2.0f, 3.0f, 0.5f})
      devices.run("unary", {in(t, {-2, -1, 0, 1, 2}), out(t, 5)}, UnaryParams{.n = 5, .a = power},
                  {15, 1}, {1});
  }
}

TEST_CASE("kernels: binary, compare, where") {
  KernelComparison& devices = KernelComparison::instance();
  for (DType t : all_types)
    for (uint32_t op = 0; op < 6; ++op) {
      const bool divides = t == DType::i32 && op == 3;
      const auto run = [&](uint32_t n, uint32_t b_size, BinaryParams p, uint32_t mode,
                           uint32_t a_size, uint32_t threads) {
        auto b = divides ? integers(b_size, 1, 5, 3) : operands_of(t, b_size, 3);
        if (is_float(t) && op == 3) b = values(b_size, 0.5f, 2, 3);
        const auto a = operands_of(t, a_size, 2);
        p.n = n;
        if (t != DType::u8)
          devices.run("binary", {in(t, a), in(t, b), out(t, n)}, p, {op, mode}, {threads});
        devices.run("compare", {in(t, a), in(t, b), out(DType::u8, n)}, p, {op, mode}, {threads});
      };
      for (uint32_t n : {0u, 1u, 515u}) {
        run(n, n, {}, 1, n, flat(n));
        for (uint32_t period : {24u, 8u, 30522u, 13u})
          run(n, period, {.period = period}, 2, n, flat(n));
        run(n, 1, {}, 3, n, flat(n));
      }
      run(60, 5, {.rank = 3, .shape = {3, 4, 5}, .a_stride = {1, 3, 12}, .b_stride = {0, 0, 1}}, 0,
          60, 60);
    }
  for (DType t : all_types)
    devices.run("where",
                {in(DType::u8, integers(20, 0, 2)), in(t, operands_of(t, 60, 2)),
                 in(t, operands_of(t, 1, 3)), out(t, 60)},
                WhereParams{.n = 60,
                            .rank = 3,
                            .shape = {3, 4, 5},
                            .c_stride = {0, 5, 1},
                            .a_stride = {20, 1, 4},
                            .b_stride = {0, 0, 0}},
                {}, {60});
}

TEST_CASE("kernels: accumulate, dropout, random") {
  KernelComparison& devices = KernelComparison::instance();
  for (DType t : floats)
    for (uint32_t n : kernel_sizes) {
      devices.run("accumulate", {in(t, values(n)), inout(DType::f32, values(n, -1, 1, 2))},
                  AccumulateParams{.n = n, .a = 0.37f}, {}, {flat(n)});
      devices.run("dropout", {in(t, values(n)), out(t, n)},
                  DropoutParams{.n = n,
                                .keep = 0.8f,
                                .seed_lo = 1,
                                .seed_hi = 2,
                                .counter_lo = 0xfffffff0,
                                .counter_hi = 7},
                  {}, {flat(n)});
      for (uint32_t normal : {0u, 1u}) {
        devices.tolerance = normal ? 1e-3 : 2e-5;  // log near 1 is exact to 2^-21 only
        devices.run("random", {out(t, n)},
                    RandomParams{.n = n, .a = -1, .b = 2, .seed_lo = 5, .counter_lo = 9}, {normal},
                    {flat(n)});
      }
      devices.tolerance = 2e-5;
    }
}

TEST_CASE("kernels: reduce, reduce_columns, reduce_rows, argreduce") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 1e-4;
  struct TypePair {
    DType input, output;
  };
  constexpr TypePair pairs[] = {{DType::f32, DType::f32},   {DType::f32, DType::f16},
                                {DType::f16, DType::f16},   {DType::f16, DType::f32},
                                {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                                {DType::f32, DType::bf16},  {DType::i32, DType::i32}};
  struct Size {
    uint32_t outer, count, inner;
  };
  for (const auto [from, to] : pairs)
    for (uint32_t op = 0; op < 4; ++op)
      for (const Size s : {Size{1, 1, 1}, {3, 5, 7}, {2, 33, 16}, {5, 1000, 1}, {70, 64, 1}}) {
        const uint32_t n = s.outer * s.count * s.inner, m = s.outer * s.inner;
        const auto x = op == 3          ? values(n, 0.9f, 1.1f)
                       : is_float(from) ? values(n)
                                        : integers(n, -50, 50);
        for (const uint32_t chunks : {1u, 3u}) {  // the last one is shorter
          if (s.count < 4 && chunks > 1) continue;
          const uint32_t chunk = (s.count + chunks - 1) / chunks, all = m * chunks;
          const ReduceParams p{
              .outer = s.outer, .count = s.count, .inner = s.inner, .chunk = chunk, .scale = 0.5f};
          devices.run("reduce", {in(from, x), out(to, all)}, p, {op}, {1});
          devices.run("reduce_columns", {in(from, x), out(to, all)}, p, {op, 0, 1}, {all});
          if (s.inner % 8 == 0)
            for (const uint32_t team : {1, REDUCE_TEAM, LARGE_TEAM})
              devices.run("reduce_columns", {in(from, x), out(to, all)}, p, {op, 1, team},
                          {all / 8 * team});
          if (s.inner == 1) devices.run("reduce_rows", {in(from, x), out(to, all)}, p, {op}, {all});
        }
        if (op < 2 && from != to) continue;
        if (op < 2)
          devices.run("argreduce", {in(from, integers(n, -9, 9)), out(DType::i32, m)},
                      ReduceParams{.outer = s.outer, .count = s.count, .inner = s.inner}, {op},
                      {m});
      }
  for (DType t : floats) {  // a NaN wins
    auto x = values(300);
    x[130] = nan_value;
    for (uint32_t op : {1u, 2u}) {
      const ReduceParams p{.outer = 3, .count = 100, .inner = 1, .chunk = 100, .scale = 1};
      devices.run("reduce_columns", {in(t, x), out(t, 3)}, p, {op, 0, 1}, {3});
      devices.run("reduce_rows", {in(t, x), out(t, 3)}, p, {op}, {3});
      devices.run("argreduce", {in(t, x), out(DType::i32, 3)},
                  ReduceParams{.outer = 3, .count = 100, .inner = 1}, {op - 1}, {3});
    }
  }
  devices.run("argreduce", {in(DType::i32, integers(70000, 0, 1e6)), out(DType::i32, 1)},
              ReduceParams{.outer = 1, .count = 70000, .inner = 1}, {0}, {1});
}

TEST_CASE("kernels: cross_entropy and its gradient") {
  KernelComparison& devices = KernelComparison::instance();
  for (DType t : floats)
    for (float smoothing : {0.0f, 0.1f})
      for (uint32_t cols : {3u, 40u, 1001u}) {
        const uint32_t rows = 6, n = rows * cols;
        auto x = values(n, -9, 9);
        x[4 * cols] = nan_value;
        if (smoothing == 0) x[5 * cols] = -infinity;
        // A target beyond the classes would read an ordinary number.
        const auto target = in(DType::i32, {0, 2, static_cast<float>(cols), -100, 1, 1});
        const auto make = [&]<class P>(P p) {
          p.rows = rows, p.cols = cols, p.smoothing = smoothing, p.ignore_index = -100;
          return p;
        };
        devices.run("cross_entropy",
                    {in(t, x), target, out(DType::f32, rows), out(DType::f32, rows)},
                    make(ClassLossParams{}), {}, {rows});
        devices.run("cross_entropy_grad",
                    {in(t, values(n)), target, in(DType::f32, values(rows, 3, 4)),
                     in(DType::f32, values(rows)), out(t, n)},
                    make(ClassLossParams{}), {}, {flat(n)});
      }
}

TEST_CASE("kernels: gather, scatter_add, scatter_put") {
  KernelComparison& devices = KernelComparison::instance();
  for (uint32_t width : {1u, 16u, 21u})
    for (uint32_t n : {1u, 37u, 600u}) {
      const uint32_t rows = 11;
      const auto index = integers(n, -1, 12, 4);  // -1 and 11 are outside
      for (DType t : {DType::f32, DType::f16, DType::bf16, DType::i32})
        devices.run(
            "gather",
            {in(t, operands_of(t, rows * width, 5)), in(DType::i32, index), out(t, n * width)},
            RowsParams{.n = n, .width = width, .rows = rows}, {}, {flat(n * width)});
      std::vector<float> order(n), key, last(n);
      std::iota(order.begin(), order.end(), 0.0f);
      const auto at = [&](float i) { return index[static_cast<size_t>(i)]; };
      std::stable_sort(order.begin(), order.end(), [&](float a, float b) { return at(a) < at(b); });
      for (float i : order) key.push_back(at(i));
      for (uint32_t i = 0; i < n; ++i)
        last[static_cast<size_t>(order[i])] = i + 1 == n || key[i + 1] != key[i];
      const auto sorted_key = in(DType::i32, key), places = in(DType::i32, order);
      devices.run("sorted_lasts", {sorted_key, places, out(DType::i32, n)}, SortParams{.n = n}, {},
                  {n});
      const uint32_t chunks = (n + SCATTER_CHUNK - 1) / SCATTER_CHUNK;
      for (DType t : {DType::f32, DType::f16, DType::bf16, DType::i32}) {
        const DType wide = t == DType::i32 ? t : DType::f32;
        const auto x = in(t, operands_of(t, n * width, 7));
        const auto y = inout(wide, operands_of(wide, rows * width, 2));
        for (uint32_t in_order : {0u, 1u})
          devices.run(
              "scatter_add",
              {x, sorted_key, places, y, inout(wide, std::vector<float>(2 * chunks * width)),
               out(DType::i32, 2 * chunks)},
              RowsParams{.n = n, .width = width, .rows = rows}, {in_order}, {chunks * flat(width)});
        devices.run("scatter_put", {x, in(DType::i32, index), in(DType::i32, last), y},
                    RowsParams{.n = n, .width = width, .rows = rows}, {0}, {flat(n * width)});
        if (n == 1)
          devices.run("scatter_put", {x, in(DType::i32, {3}), in(DType::i32, {0}), y},
                      RowsParams{.n = n, .width = width, .rows = rows}, {1}, {flat(n * width)});
      }
    }
}

TEST_CASE("kernels: reduce in levels") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 1e-4;
  struct Size {
    uint32_t outer, count, inner;
  };
  for (const Size s : {Size{1, 70001, 1}, {3, 20001, 1}, {2, 5003, 9}, {1, 9001, 16}}) {
    const uint32_t n = s.outer * s.count * s.inner, m = s.outer * s.inner;
    const ReduceParams p{.outer = s.outer,
                         .count = s.count,
                         .inner = s.inner,
                         .chunk = s.count,
                         .scale = 1.0f / static_cast<float>(s.count)};
    for (const DType t : {DType::f32, DType::f16, DType::bf16})
      for (const uint32_t op : {0u, 1u})
        devices.run("reduce", {in(t, values(n)), out(t, m)}, p, {op}, {1});
  }
}

TEST_CASE("kernels: batch norm") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 1e-4;
  for (DType t : floats)
    for (uint32_t channels : {1u, 5u, 8u, 72u}) {
      const uint32_t rows = 133, n = rows * channels;
      const auto f32 = [&](float lo, float hi, uint32_t seed) {
        return in(DType::f32, values(channels, lo, hi, seed));
      };
      const auto x = in(t, values(n, 2, 5)), dy = in(t, values(n, -1, 1, 2));
      constexpr float scale = NORM_SCALE * NORM_SCALE;
      const auto mean = in(DType::f32, values(2 * channels, 3, 4, 3)),
                 var = f32(0.5f * scale, scale, 4), weight = f32(-1, 1, 5);
      const std::array<uint32_t, 3> threads = {
          flat(channels) * ((rows + BATCH_NORM_ROWS - 1) / BATCH_NORM_ROWS), 1, 1};
      devices.run(
          "batch_norm_stats",
          {x, out(DType::f32, channels), out(DType::f32, channels), out(DType::f32, 2 * channels)},
          BatchNormParams{.rows = rows, .channels = channels}, {}, {1});
      for (const uint32_t has_rest : {0u, 1u}) {
        devices.run(
            "batch_norm_grad_stats", {x, dy, mean, var, out(DType::f32, 2 * channels)},
            BatchNormParams{.rows = rows, .channels = channels, .eps = 1e-5f, .has_rest = has_rest},
            {}, {1});
        devices.run(
            "batch_norm", {x, mean, var, weight, f32(-1, 1, 6), out(t, n)},
            BatchNormParams{.n = n, .channels = channels, .eps = 1e-5f, .has_rest = has_rest}, {},
            threads);
        for (uint32_t train : {0u, 1u})
          devices.run(
              "batch_norm_grad",
              {x, dy, mean, var, weight, in(DType::f32, values(2 * channels, -9, 9, 7)), out(t, n)},
              BatchNormParams{.n = n,
                              .rows = rows,
                              .channels = channels,
                              .eps = 1e-5f,
                              .train = train,
                              .has_rest = has_rest},
              {}, threads);
      }
    }
}

TEST_CASE("kernels: pooling") {
  KernelComparison& devices = KernelComparison::instance();
  struct Window {
    uint32_t out_h, out_w, kernel_h, kernel_w, stride, pad, dilation;
  };
  for (DType t : floats)
    for (uint32_t channels : {3u, 8u})
      for (const Window w : {Window{4, 3, 2, 2, 2, 0, 1},
                             {5, 4, 3, 3, 2, 1, 1},
                             {1, 1, 9, 7, 1, 0, 1},
                             {5, 3, 3, 3, 1, 0, 2},
                             {5, 4, 2, 2, 2, 0, 1}}) {
        PoolParams p{.batch = 2,
                     .in_h = 9,
                     .in_w = 7,
                     .channels = channels,
                     .out_h = w.out_h,
                     .out_w = w.out_w,
                     .kernel_h = w.kernel_h,
                     .kernel_w = w.kernel_w,
                     .stride_h = w.stride,
                     .stride_w = w.stride,
                     .pad_h = w.pad,
                     .pad_w = w.pad,
                     .dilation_h = w.dilation,
                     .dilation_w = w.dilation};
        const uint32_t n = 2 * 9 * 7 * channels, m = 2 * w.out_h * w.out_w * channels;
        auto x = integers(n, -5, 5);  // with ties
        x[n / 2] = nan_value;
        for (DType tap : {DType::u8, DType::i32}) {
          devices.run("max_pool2d", {in(t, x), out(t, m), out(tap, m)}, p, {}, {flat(m)});
          devices.run("max_pool2d_grad", {in(t, values(m)), in(tap, taps_in_windows(p)), out(t, n)},
                      p, {}, {flat(n)});
        }
        if (w.dilation != 1) continue;
        for (uint32_t include_pad : {0u, 1u}) {
          p.count_include_pad = include_pad;
          devices.run("avg_pool2d", {in(t, values(n)), out(t, m)}, p, {}, {flat(m)});
          devices.run("avg_pool2d_grad", {in(t, values(m)), out(t, n)}, p, {}, {flat(n)});
        }
      }
}
