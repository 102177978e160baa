// Kernels that keep rows in registers, compared with the reference backend for every way to share a
// row; and strided copies, by words and by tiles.
#include <algorithm>
#include <limits>

#include "tests/fixtures/compare_kernels.h"
#include "tests/fixtures/optim_fixture.h"

namespace rw::test {

namespace {

using namespace kernels;

struct Way {
  uint32_t team, rounds, cols;
};

// Returns the rows that a team of `lanes` threads can keep: the longest, one word less, one word.
// CPU drivers take minutes to compile all of them and use none, so there only the one with the most
// registers is tested.
std::vector<Way> ways(const DeviceInfo& device) {
  const uint32_t subgroup_size = device.subgroup_size;
  std::vector<Way> all;
  for (uint32_t team : {0u, 1u, 8u}) {
    if (team == 8 && subgroup_size % 8 != 0) continue;
    const uint32_t lanes = team ? team == 1 ? subgroup_size : team : subgroup_size;
    for (uint32_t rounds : device.is_cpu ? std::vector{4u} : std::vector{1u, 2u, 4u})
      for (uint32_t words : {1u, lanes * rounds - 1, lanes * rounds})
        if (words > 0) all.push_back({team, rounds, words * 8});
  }
  return all;
}

struct CastCase {
  DType from, to;
};
constexpr CastCase cast_cases[] = {{DType::f32, DType::f32},
                                   {DType::f16, DType::f16},
                                   {DType::bf16, DType::bf16},
                                   {DType::f16, DType::f32}};

}  // namespace

TEST_CASE("kernels: rows kept in registers") {
  KernelComparison& devices = KernelComparison::instance();
  const DeviceInfo& device = devices.device();
  if (!device.has("subgroup arithmetic") || !device.has("subgroup shuffle")) return;
  devices.is_aligned = true;
  for (const auto [from, to] : cast_cases)
    for (const auto [team, rounds, cols] : ways(device))
      for (uint32_t flag : {0u, 1u}) {
        const uint32_t rows = 21, n = rows * cols;
        CAPTURE(team);
        CAPTURE(rounds);
        CAPTURE(cols);
        const std::vector<uint32_t> variant = {flag, team, rounds};
        auto x = values(n, -8, 8);
        x[0] = -infinity;  // rows with a NaN, an infinity, nothing but -infinity, large values
        x[cols] = std::numeric_limits<float>::quiet_NaN();
        x[cols * 2 + 5] = infinity;
        for (uint32_t i = 0; i < cols; ++i) x[cols * 3 + i] = -infinity, x[cols * 4 + i] *= 1000;
        devices.run("softmax_kept", {in(from, x), out(to, n)},
                    SoftmaxParams{.rows = rows, .cols = cols}, variant, {rows});
        devices.run("softmax_grad_kept",
                    {in(to, values(n, flag ? -8 : 0, flag ? 0 : 1)), in(to, values(n, -1, 1, 2)),
                     out(from, n)},
                    SoftmaxParams{.rows = rows, .cols = cols}, variant, {rows});
        if (from != to) continue;
        const auto own = values(n, 2, 5), weight = values(cols, -1, 1, 5);
        devices.run("layer_norm_kept",
                    {in(from, own), in(DType::f32, weight), in(DType::f32, values(cols, -1, 1, 6)),
                     out(from, n), out(DType::f32, 2 * rows)},
                    LayerNormParams{.rows = rows, .cols = cols, .eps = 1e-3f}, variant, {rows});
        std::vector<float> stats;
        for (uint32_t row = 0; row < rows; ++row)
          stats.insert(stats.end(), {flag ? 0.0f : 3.5f, 1.1f});
        devices.run("layer_norm_grad_kept",
                    {in(from, own), in(from, values(n, -1, 1, 3)), in(DType::f32, weight),
                     in(DType::f32, stats), out(from, n)},
                    LayerNormParams{.rows = rows, .cols = cols}, variant, {rows});
      }
  devices.is_aligned = false;
}

TEST_CASE("kernels: softmax and softmax_grad") {
  KernelComparison& devices = KernelComparison::instance();
  struct Size {
    uint32_t rows, cols;
  };
  std::vector<CastCase> cases(std::begin(cast_cases), std::end(cast_cases));
  cases.push_back({DType::bf16, DType::f32});
  for (const auto [from, to] : cases)
    for (uint32_t log : {0u, 1u})
      for (const Size s : {Size{1, 1}, {3, 7}, {9, 64}, {5, 1000}, {2, 5001}}) {
        const uint32_t n = s.rows * s.cols;
        const SoftmaxParams p{.rows = s.rows, .cols = s.cols};
        auto x = values(n, -8, 8);
        devices.run("softmax", {in(from, x), out(to, n)}, p, {log}, {s.rows});
        if (s.cols == 64) {  // overflow, masks, NaN, infinity
          x[0] = -infinity;
          x[64] = std::numeric_limits<float>::quiet_NaN();
          x[64 * 2 + 5] = infinity;
          for (int i = 0; i < 64; ++i) x[64 * 3 + i] = -infinity, x[64 * 4 + i] *= 1000;
          devices.run("softmax", {in(from, x), out(to, n)}, p, {log}, {s.rows});
        }
        devices.run("softmax_grad",
                    {in(to, values(n, log ? -8 : 0, log ? 0 : 1)), in(to, values(n, -1, 1, 2)),
                     out(from, n)},
                    SoftmaxParams{.rows = s.rows, .cols = s.cols}, {log}, {s.rows});
      }
}

TEST_CASE("kernels: layer norm of rows that are no whole words") {
  KernelComparison& devices = KernelComparison::instance();
  for (const DType t : {DType::f32, DType::f16, DType::bf16})
    for (const uint32_t cols : {1u, 7u, 40u, 203u})
      for (const uint32_t rms : {0u, 1u}) {
        const uint32_t rows = 5, n = rows * cols;
        CAPTURE(cols);
        const auto x = in(t, values(n, 2, 5)), weight = in(DType::f32, values(cols, -1, 1, 5));
        devices.run("layer_norm",
                    {x, weight, in(DType::f32, values(cols, -1, 1, 6)), out(t, n),
                     out(DType::f32, 2 * rows)},
                    LayerNormParams{.rows = rows, .cols = cols, .eps = 1e-1f}, {rms}, {rows});
        std::vector<float> stats;
        for (uint32_t row = 0; row < rows; ++row)
          stats.insert(stats.end(), {rms ? 0.0f : 3.5f, 1.1f});
        devices.run("layer_norm_grad",
                    {x, in(t, values(n, -1, 1, 3)), weight, in(DType::f32, stats), out(t, n)},
                    LayerNormParams{.rows = rows, .cols = cols}, {rms}, {rows});
      }
}

TEST_CASE("kernels: copies of rows in words") {
  KernelComparison& devices = KernelComparison::instance();
  devices.is_aligned = true;
  for (const DType from : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
    for (const DType to : {from, from == DType::u8 ? DType::i32 : DType::f32}) {
      // x [3, 50, 16 of 24], y [50, 3, 16], both larger by the gaps between the rows; also rows
      // that do not begin at whole words.
      for (const uint32_t row : {24u, 25u}) {
        CopyParams p{.n = 3 * 50 * 16, .rank = 3};
        const uint32_t shape[] = {3, 50, 16}, x_stride[] = {50 * row, row, 1};
        const uint32_t y_stride[] = {16, 48, 1};
        std::copy_n(shape, 3, p.shape);
        std::copy_n(x_stride, 3, p.x_stride);
        std::copy_n(y_stride, 3, p.y_stride);
        const size_t count = 150 * row;
        devices.run(
            "copy",
            {in(from, is_float(from) ? values(count) : integers(count, 0, 99)), out(to, p.n)}, p,
            {}, {1});
      }
    }
  devices.is_aligned = false;
}

TEST_CASE("kernels: copies to and from rows that begin beside a whole word") {
  on_each_device([] {
    for (const DType t : {DType::f32, DType::f16, DType::u8})
      for (const size_t from : {0, 4})
        for (const size_t to : {0, 4}) {
          const std::vector<float> v = integers(72, 0, 99);
          const Tensor x = cast(tensor(v, {3, 24}), t), y = zeros({3, 24}, t);
          const auto part = [](const Tensor& whole, size_t first) {
            return slice(whole, 1, static_cast<int64_t>(first), static_cast<int64_t>(first) + 16);
          };
          part(y, to).copy_(part(x, from));
          std::vector<float> expected(v.size());
          for (size_t i = 0; i < 3; ++i) std::copy_n(&v[24 * i + from], 16, &expected[24 * i + to]);
          CHECK(y.to_vector() == expected);
        }
  });
}

TEST_CASE("kernels: copies that turn matrices") {
  KernelComparison& devices = KernelComparison::instance();
  struct Size {
    uint32_t batch, rows, columns;
  };
  for (const DType from : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
    for (const DType to : {from, from == DType::u8 ? DType::i32 : DType::f32})
      for (const Size s : {Size{1, 1, 1}, {2, 33, 31}, {3, 64, 32}, {1, 70, 129}}) {
        // x [columns, batch, rows], y [batch, rows, columns].
        const uint32_t n = s.batch * s.rows * s.columns;
        CopyParams p{.n = n, .rank = 3};
        const uint32_t shape[] = {s.batch, s.rows, s.columns};
        const uint32_t x_stride[] = {s.rows, 1, s.batch * s.rows};
        const uint32_t y_stride[] = {s.rows * s.columns, s.columns, 1};
        std::copy_n(shape, 3, p.shape);
        std::copy_n(x_stride, 3, p.x_stride);
        std::copy_n(y_stride, 3, p.y_stride);
        const uint32_t tiles = s.batch * ((s.rows + 31) / 32) * ((s.columns + 31) / 32);
        devices.run("copy_tiled",
                    {in(from, is_float(from) ? values(n) : integers(n, 0, 99)), out(to, n)}, p, {},
                    {tiles});
      }
}

}  // namespace rw::test
