// Known answers for the reference backend's kernels, worked out by hand.
#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "backends/reference/reference_backend.h"
#include "core/base/error.h"
#include "shaders/params.h"
#include "tests/fixtures/kernel_runner.h"

using namespace rw;
using namespace rw::kernels;
using rw::test::KernelRunner;
using rw::test::max_difference;
using Values = std::vector<float>;

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("reduce and argreduce") {
  KernelRunner cpu(make_reference_backend());
  const Binding x = cpu.upload({1, 5, 2, -3, 4, 8, 6, 7, -9, 0, 3, 3});  // [2, 3, 2]
  const Binding y = cpu.allocate(4), index = cpu.allocate(4, DType::i32);
  const auto reduce = [&](uint32_t op, float scale) {
    cpu.run("reduce", {x, y}, ReduceParams{{}, 2, 3, 2, 3, scale}, {op});
    return cpu.download(y);
  };
  CHECK(reduce(0, 1) == Values{7, 10, 0, 10});
  CHECK(reduce(0, 0.5f) == Values{3.5f, 5, 0, 5});
  CHECK(reduce(1, 1) == Values{4, 8, 6, 7});
  CHECK(reduce(2, 1) == Values{1, -3, -9, 0});
  CHECK(reduce(3, 1) == Values{8, -120, -162, 0});
  const Binding chunks = cpu.allocate(8);  // of two places and of one
  cpu.run("reduce", {x, chunks}, ReduceParams{{}, 2, 3, 2, 2, 1}, {0});
  CHECK(cpu.download(chunks) == Values{3, 2, 4, 8, -3, 7, 3, 3});

  // Integers that no float holds.
  const std::array<int32_t, 3> large = {(1 << 24) + 1, 1 << 30, -(1 << 30)};
  const Binding ints = cpu.allocate(3, DType::i32), sum = cpu.allocate(1, DType::i32);
  cpu.backend().write(ints.range, large.data());
  cpu.run("reduce", {ints, sum}, ReduceParams{{}, 1, 3, 1, 3, 1}, {0});
  int32_t exact = 0;
  cpu.backend().read(sum.range, &exact);
  CHECK(exact == (1 << 24) + 1);

  cpu.run("argreduce", {x, index}, ReduceParams{.outer = 2, .count = 3, .inner = 2}, {0});
  CHECK(cpu.download(index) == Values{2, 2, 0, 0});
  cpu.run("argreduce", {x, index}, ReduceParams{.outer = 2, .count = 3, .inner = 2}, {1});
  CHECK(cpu.download(index) == Values{0, 1, 1, 1});
  const Binding with_nan = cpu.upload({1, NAN, 9, NAN});
  cpu.run("argreduce", {with_nan, index}, ReduceParams{.outer = 1, .count = 4, .inner = 1}, {0});
  CHECK(cpu.download(index)[0] == 1);
  cpu.run("reduce_rows", {with_nan, y}, ReduceParams{{}, 1, 4, 1, 4, 1}, {1});
  CHECK(std::isnan(cpu.download(y)[0]));
}

TEST_CASE("softmax and its gradient") {
  KernelRunner cpu(make_reference_backend());
  const float ln2 = std::log(2.0f), ln5 = std::log(5.0f);
  const Binding x = cpu.upload({0, ln2, ln5, 1000, 1000 + ln2, 1000 + ln5});
  const Binding dy = cpu.upload({1, 0, 0, 0, 0, 8}), y = cpu.allocate(6), dx = cpu.allocate(6);
  cpu.run("softmax", {x, y}, SoftmaxParams{{}, 2, 3}, {0});
  CHECK(max_difference(cpu.download(y), {.125f, .25f, .625f, .125f, .25f, .625f}) < 1e-4);
  // y (dy - sum(y dy)), with sums 1/8 and 5.
  cpu.run("softmax_grad", {y, dy, dx}, SoftmaxParams{{}, 2, 3}, {0});
  CHECK(max_difference(cpu.download(dx),
                       {.125f * .875f, -.25f / 8, -.625f / 8, -.625f, -1.25f, .625f * 3}) < 1e-3);
  cpu.run("softmax", {x, y}, SoftmaxParams{{}, 2, 3}, {1});
  CHECK(cpu.download(y)[1] == doctest::Approx(std::log(0.25)));
  // dy - exp(y) sum(dy)
  cpu.run("softmax_grad", {y, dy, dx}, SoftmaxParams{{}, 2, 3}, {1});
  CHECK(max_difference(cpu.download(dx), {.875f, -.25f, -.625f, -1, -2, 3}) < 1e-3);
}

TEST_CASE("cross_entropy and its gradient: smoothing, ignored and invalid targets") {
  KernelRunner cpu(make_reference_backend());
  const double ln2 = std::log(2), ln5 = std::log(5), ln8 = std::log(8);
  Values rows;
  for (int i = 0; i < 3; ++i) rows.insert(rows.end(), {0, float(ln2), float(ln5)});
  const Binding x = cpu.upload(rows), target = cpu.upload({2, -100, 3}, DType::i32);
  const Binding loss = cpu.allocate(3), lse = cpu.allocate(3);
  const auto forward = [&](float smoothing) {
    cpu.run("cross_entropy", {x, target, loss, lse}, ClassLossParams{{}, 3, 3, smoothing, -100});
    return cpu.download(loss);
  };
  CHECK(forward(0)[0] == doctest::Approx(ln8 - ln5));
  const Values smoothed = forward(0.3f);
  CHECK(smoothed[0] == doctest::Approx(0.7 * (ln8 - ln5) + 0.3 * (ln8 - (ln2 + ln5) / 3)));
  CHECK(smoothed[1] == 0);
  CHECK(std::isnan(smoothed[2]));
  CHECK(cpu.download(lse)[1] == doctest::Approx(ln8));

  const Binding dloss = cpu.upload({2, 2, 2}), dx = cpu.allocate(9);
  cpu.run("cross_entropy_grad", {x, target, lse, dloss, dx}, ClassLossParams{{}, 3, 3, 0.3f, -100});
  Values grad = cpu.download(dx);
  grad.resize(6);
  CHECK(max_difference(grad, {2 * (.125f - .1f), 2 * (.25f - .1f), 2 * (.625f - .8f), 0, 0, 0}) <
        1e-6);
}

TEST_CASE("gather, scatter_add, scatter_put") {
  KernelRunner cpu(make_reference_backend());
  const Binding table = cpu.upload({1, 2, 3, 4, 5, 6});  // [3, 2]
  const Binding index = cpu.upload({2, 0, 2, 2, 7}, DType::i32), y = cpu.allocate(10);
  cpu.run("gather", {table, index, y}, RowsParams{.n = 5, .width = 2, .rows = 3});
  Values rows = cpu.download(y);
  CHECK(std::isnan(rows[8]));
  rows.resize(8);
  CHECK(rows == Values{5, 6, 1, 2, 5, 6, 5, 6});

  const Binding key = cpu.allocate(5, DType::i32), order = cpu.allocate(5, DType::i32);
  cpu.run("sort_blocks", {index, key, order}, SortParams{.n = 5, .count = 5});
  CHECK(cpu.download(order) == Values{1, 0, 2, 3, 4});
  const Binding last = cpu.allocate(5, DType::i32);
  cpu.run("sorted_lasts", {key, order, last}, SortParams{.n = 5});
  CHECK(cpu.download(last) == Values{0, 1, 0, 1, 1});

  const Binding dy = cpu.upload({1, 10, 2, 20, 3, 30, 4, 40, 5, 50});
  const Binding open = cpu.allocate(4), open_key = cpu.allocate(2, DType::i32);
  cpu.run("scatter_add", {dy, key, order, table, open, open_key},
          RowsParams{{}, 5, 2, 3, 1u << 31});
  CHECK(cpu.download(table) == Values{1 + 2, 2 + 20, 3, 4, 5 + 8, 6 + 80});
  CHECK(cpu.download(open_key) == Values{-1, -1});
  cpu.run("scatter_put", {dy, index, last, table}, RowsParams{.n = 5, .width = 2, .rows = 3});
  CHECK(cpu.download(table) == Values{2, 20, 3, 4, 4, 40});
}

TEST_CASE("scatter_add: runs over several chunks") {
  KernelRunner cpu(make_reference_backend());
  // Places 0 and 1 of row 0, 2 to 71 of row 1, 72 and 73 of no row: three chunks.
  const uint32_t n = 74;
  Values keys(n), places(n), ones(n, 1);
  for (uint32_t i = 0; i < n; ++i) keys[i] = i < 2 ? 0 : i < 72 ? 1 : 5, places[i] = n - 1 - i;
  const Binding key = cpu.upload(keys, DType::i32), order = cpu.upload(places, DType::i32);
  const Binding x = cpu.upload(ones);
  const Binding y = cpu.upload({10, 20}), open = cpu.upload({7, 7, 7, 7, 7, 7});
  const Binding open_key = cpu.allocate(6, DType::i32);
  cpu.run("scatter_add", {x, key, order, y, open, open_key}, RowsParams{{}, n, 1, 2, 0});
  CHECK(cpu.download(y) == Values{12, 20});
  CHECK(cpu.download(open) == Values{7, 30, 32, 0, 8, 7});
  const Binding rest = cpu.allocate(2), rest_key = cpu.allocate(2, DType::i32);
  cpu.run("scatter_add", {open, open_key, open_key, y, rest, rest_key}, RowsParams{{}, 6, 1, 2, 0},
          {1});
  CHECK(cpu.download(y) == Values{12, 90});
}

TEST_CASE("batch_norm: statistics, output, gradient") {
  KernelRunner cpu(make_reference_backend());
  // Channel 0: mean 3, variance 3.5. Channel 1: a large mean, variance 1.25.
  const Binding x = cpu.upload({1, 4001, 2, 4002, 3, 4003, 6, 4004});
  const Binding mean = cpu.allocate(2), var = cpu.allocate(2), both = cpu.allocate(4);
  cpu.run("batch_norm_stats", {x, mean, var, both}, BatchNormParams{.rows = 4, .channels = 2});
  CHECK(cpu.download(mean) == Values{3, 4002.5f});
  CHECK(cpu.download(both) == Values{3, 4002.5f, 0, 0});
  constexpr float scale = NORM_SCALE * NORM_SCALE;
  CHECK(cpu.download(var) == Values{3.5f * scale, 1.25f * scale});

  const Binding weight = cpu.upload({2, 1}), bias = cpu.upload({0.5f, 0}), y = cpu.allocate(8);
  cpu.run("batch_norm", {x, both, var, weight, bias, y},
          BatchNormParams{.n = 8, .channels = 2, .eps = 0.5f, .has_rest = 1}, {0});
  const Values out = cpu.download(y);  // sqrt(var + eps) = 2 in channel 0
  CHECK(out[0] == -1.5f);
  CHECK(out[6] == 3.5f);
  CHECK(out[1] == doctest::Approx(-1.5 / std::sqrt(1.75)));

  // eps 0, dy = 1 at the first row of channel 0: sum(dy) = 1, sum(dy xhat) = -2 / sqrt(3.5).
  const Binding dy = cpu.upload({1, 0, 0, 0, 0, 0, 0, 0}), sums = cpu.allocate(4);
  cpu.run("batch_norm_grad_stats", {x, dy, mean, var, sums},
          BatchNormParams{.rows = 4, .channels = 2});
  const float deviation = std::sqrt(3.5f);
  CHECK(max_difference(cpu.download(sums), {-2 / deviation, 0, 1, 0}) < 1e-6);
  const Binding dx = cpu.allocate(8);
  const auto grad = [&](uint32_t train) {
    cpu.run("batch_norm_grad", {x, dy, mean, var, weight, sums, dx},
            BatchNormParams{.n = 8, .rows = 4, .channels = 2, .train = train}, {0});
    return cpu.download(dx);
  };
  // (dy - (1 + d * -2 / 3.5) / 4) * 2 / deviation for d = -2, -1, 0, 3
  const float k = 2 / deviation;
  CHECK(max_difference(grad(1), {k * (1 - 15 / 28.0f), 0, k * -11 / 28.0f, 0, k * -7 / 28.0f, 0,
                                 k * 5 / 28.0f, 0}) < 1e-6);
  CHECK(max_difference(grad(0), {k, 0, 0, 0, 0, 0, 0, 0}) < 1e-6);
}

TEST_CASE("pooling: padding, ties, gradients") {
  KernelRunner cpu(make_reference_backend());
  PoolParams p{.offset = {}, .batch = 1, .in_h = 3, .in_w = 3, .channels = 1};
  p.out_h = p.out_w = 2;
  p.kernel_h = p.kernel_w = p.stride_h = p.stride_w = 2;
  p.pad_h = p.pad_w = p.dilation_h = p.dilation_w = 1;
  const Binding x = cpu.upload({-1, 2, 2, 4, 5, 6, 7, 9, 9});
  const Binding y = cpu.allocate(4), dx = cpu.allocate(9), dy = cpu.upload({1, 2, 3, 4});
  for (const DType dtype : {DType::u8, DType::i32}) {
    const Binding tap = cpu.allocate(4, dtype);
    cpu.run("max_pool2d", {x, y, tap}, p);
    CHECK(cpu.download(y) == Values{-1, 2, 7, 9});  // padding is never the maximum
    CHECK(cpu.download(tap) == Values{3, 2, 3, 2});
    cpu.run("max_pool2d_grad", {dy, tap, dx}, p);
    CHECK(cpu.download(dx) == Values{1, 2, 0, 0, 0, 0, 3, 4, 0});
  }

  cpu.run("avg_pool2d", {x, y}, p);
  CHECK(cpu.download(y) == Values{-1, 2, 5.5f, 7.25f});
  p.count_include_pad = 1;
  cpu.run("avg_pool2d", {x, y}, p);
  CHECK(cpu.download(y) == Values{-0.25f, 1, 2.75f, 7.25f});
  cpu.run("avg_pool2d_grad", {dy, dx}, p);
  CHECK(cpu.download(dx) == Values{.25f, .5f, .5f, .75f, 1, 1, .75f, 1, 1});

  // A size rounded up: the last window ends outside, only what lies inside counts.
  p.pad_h = p.pad_w = 0;
  cpu.run("avg_pool2d", {x, y}, p);
  CHECK(cpu.download(y) == Values{2.5f, 4, 8, 9});
}

TEST_CASE("matmul: transposed operands, batches, alpha and beta") {
  KernelRunner cpu(make_reference_backend());
  const Binding a = cpu.upload({1, 2, 3, 4, 5, 6}), b = cpu.upload({1, 0, 2, 1, 0, 3});
  MatmulParams p{.offset = {}, .m = 2, .n = 2, .k = 3, .batch = {1, 1}};
  p.a_row = 3, p.a_col = 1, p.b_row = 2, p.b_col = 1, p.c_row = 2;
  p.alpha = 1;
  const Binding c = cpu.allocate(4);  // NaN: must not be read while beta is 0
  cpu.run("matmul", {a, b, c}, p);
  CHECK(cpu.download(c) == Values{5, 11, 14, 23});
  p.alpha = 2, p.beta = -1;
  cpu.run("matmul", {a, b, c}, p);
  CHECK(cpu.download(c) == Values{5, 11, 14, 23});

  // a^T [3, 2] @ a [2, 3], once per batch with the second batch's b one row further.
  MatmulParams t{.offset = {}, .m = 3, .n = 1, .k = 2, .batch = {1, 2}};
  t.a_row = 1, t.a_col = 3, t.b_row = 1, t.b_col = 1, t.c_row = 1;
  t.b_batch[1] = 3, t.c_batch[1] = 3, t.alpha = 1;
  const Binding products = cpu.allocate(6);
  cpu.run("matmul", {a, a, products}, t);
  CHECK(cpu.download(products) == Values{9, 12, 15, 24, 33, 42});
}

TEST_CASE("conv2d: a worked example") {
  KernelRunner cpu(make_reference_backend());
  Conv2dParams p{.offset = {}, .batch = 1, .in_h = 3, .in_w = 3, .in_c = 1};
  p.out_h = p.out_w = 2, p.out_c = 1;
  p.kernel_h = p.kernel_w = 2;
  p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = p.groups = 1;
  const Binding x = cpu.upload({1, 2, 3, 4, 5, 6, 7, 8, 9}), w = cpu.upload({1, 2, 3, 4});
  const Binding dy = cpu.upload({1, 0, 0, 2});
  const Binding y = cpu.allocate(4), dx = cpu.allocate(9), dw = cpu.allocate(4);
  cpu.run("conv2d", {x, w, y}, p);
  CHECK(cpu.download(y) == Values{37, 47, 67, 77});
  cpu.run("conv2d_dgrad", {dy, w, dx}, p);
  CHECK(cpu.download(dx) == Values{1, 2, 0, 3, 4 + 2, 4, 0, 6, 8});
  cpu.run("conv2d_wgrad", {x, dy, dw}, p);
  CHECK(cpu.download(dw) == Values{1 + 10, 2 + 12, 4 + 16, 5 + 18});
}

namespace {

// Small integers: every sum below is exact.
Values integer_pattern(size_t n, int seed) {
  Values values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>((i * 7 + i / 3 * seed) % 5) - 2;
  return values;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

// The definition, one output element at a time.
double conv_element(const Conv2dParams& p, const Values& x, const Values& w, int image, int oh,
                    int ow, int o) {
  const int in_per_group = p.in_c / p.groups, group = o / (p.out_c / p.groups);
  double sum = 0;
  for (int kh = 0; kh < int(p.kernel_h); ++kh)
    for (int kw = 0; kw < int(p.kernel_w); ++kw)
      for (int i = 0; i < in_per_group; ++i) {
        const int h = oh * int(p.stride_h) - int(p.pad_h) + kh * int(p.dilation_h);
        const int col = ow * int(p.stride_w) - int(p.pad_w) + kw * int(p.dilation_w);
        if (h < 0 || h >= int(p.in_h) || col < 0 || col >= int(p.in_w)) continue;
        sum += x[((image * p.in_h + h) * p.in_w + col) * p.in_c + group * in_per_group + i] *
               w[((o * p.kernel_h + kh) * p.kernel_w + kw) * in_per_group + i];
      }
  return sum;
}

TEST_SUITE_END();

}  // namespace

TEST_CASE("conv2d: groups, stride, padding, dilation; gradients are its adjoints" *
          doctest::test_suite("host")) {
  KernelRunner cpu(make_reference_backend());
  Conv2dParams p{.offset = {}, .batch = 2, .in_h = 7, .in_w = 6, .in_c = 4};
  p.out_c = 6, p.kernel_h = 3, p.kernel_w = 2, p.stride_h = 2, p.stride_w = 1;
  p.pad_h = 2, p.pad_w = 1, p.dilation_h = 2, p.dilation_w = 3, p.groups = 2;
  p.out_h = 4, p.out_w = 5;
  const Values x = integer_pattern(2 * 7 * 6 * 4, 1), w = integer_pattern(6 * 3 * 2 * 2, 2);
  const Values dy = integer_pattern(2 * 4 * 5 * 6, 3);
  const Binding bx = cpu.upload(x), bw = cpu.upload(w), bdy = cpu.upload(dy);
  const Binding by = cpu.allocate(dy.size()), bdx = cpu.allocate(x.size());
  const Binding bdw = cpu.allocate(w.size());

  cpu.run("conv2d", {bx, bw, by}, p);
  const Values y = cpu.download(by);
  size_t at = 0;
  for (int image = 0; image < 2; ++image)
    for (int oh = 0; oh < 4; ++oh)
      for (int ow = 0; ow < 5; ++ow)
        for (int o = 0; o < 6; ++o) REQUIRE(y[at++] == conv_element(p, x, w, image, oh, ow, o));

  cpu.run("conv2d_dgrad", {bdy, bw, bdx}, p);
  cpu.run("conv2d_wgrad", {bx, bdy, bdw}, p);
  const double expected = dot(y, dy);
  CHECK(expected != 0);
  CHECK(dot(cpu.download(bdx), x) == expected);
  CHECK(dot(cpu.download(bdw), w) == expected);

  p.groups = 3;
  CHECK_THROWS_AS(cpu.run("conv2d", {bx, bw, by}, p), ShapeError);
}
