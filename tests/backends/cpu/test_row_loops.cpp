// The vector loops of norms, softmax and losses of classes, compared with those of the reference.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

struct RowSize {
  uint32_t rows, cols;
};
constexpr RowSize row_sizes[] = {{1, 1},     {7, 5},     {700, 3},  {1000, 16}, {5000, 10},
                                 {130, 129}, {97, 1000}, {3, 2100}, {2, 17000}};

template <class Body>
void each(const Body& body) {
  for (const DType dtype : floats)
    for (const Fill fill : fills)
      for (const RowSize size : row_sizes) {
        CAPTURE(size.rows);
        CAPTURE(size.cols);
        body(size.rows, size.cols, LoopArgument{size.rows * size.cols, dtype, fill});
      }
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu loops: batch norm") {
  each([](uint32_t rows, uint32_t cols, const LoopArgument& x) {
    const uint32_t n = rows * cols;
    const LoopArgument y{n, x.dtype}, channel{cols, f32, Fill::positive};
    std::vector<float> variances;
    for (uint32_t c = 0; c < cols; ++c)
      variances.push_back((0.5f + static_cast<float>(c % 5)) * NORM_SCALE * NORM_SCALE);
    const LoopArgument var{cols, f32, Fill::given, variances};
    check_loop({"batch_norm_stats", {x, {cols}, {cols}, {2 * cols}}, {}, summed},
               BatchNormParams{.rows = rows, .channels = cols});
    const LoopArgument means{2 * cols, f32, Fill::positive};
    for (const uint32_t has_rest : {0u, 1u}) {
      check_loop({"batch_norm", {x, means, var, channel, {cols}, y}, {}, summed},
                 BatchNormParams{.n = n, .channels = cols, .eps = 1e-5f, .has_rest = has_rest});
      check_loop(
          {"batch_norm_grad_stats", {x, y, means, var, {2 * cols}}, {}, summed},
          BatchNormParams{.rows = rows, .channels = cols, .eps = 1e-5f, .has_rest = has_rest});
      for (const uint32_t train : {0u, 1u})
        check_loop({"batch_norm_grad",
                    {x, y, means, var, channel, {2 * cols, f32, Fill::positive}, y},
                    {},
                    summed},
                   BatchNormParams{.n = n,
                                   .rows = rows,
                                   .channels = cols,
                                   .eps = 1e-5f,
                                   .train = train,
                                   .has_rest = has_rest});
    }
  });
}

TEST_CASE("cpu loops: statistics of values whose squares f32 would not hold") {
  for (const uint32_t cols : {3u, 200u}) {
    std::vector<float> values;
    for (uint32_t i = 0; i < 1000 * cols; ++i)
      values.push_back(4096 + 0.25f * static_cast<float>(i % 7) + (i < cols ? 5000.0f : 0.0f));
    check_loop({"batch_norm_stats",
                {{1000 * cols, f32, Fill::given, values}, {cols}, {cols}, {2 * cols}},
                {},
                summed},
               BatchNormParams{.rows = 1000, .channels = cols});
  }
}

TEST_CASE("cpu loops: layer and RMS norm") {
  each([](uint32_t rows, uint32_t cols, const LoopArgument& x) {
    const uint32_t n = rows * cols;
    const LoopArgument y{n, x.dtype}, weight{cols, f32, Fill::positive};
    const LoopArgument stats{2 * rows, f32, Fill::positive};
    for (const uint32_t rms : {0u, 1u}) {
      check_loop({"layer_norm", {x, weight, {cols}, y, {2 * rows}}, {rms}, summed},
                 LayerNormParams{.rows = rows, .cols = cols, .eps = 1e-3f});
      check_loop({"layer_norm_grad", {x, y, weight, stats, y}, {rms}, summed},
                 LayerNormParams{.rows = rows, .cols = cols});
      check_loop({"layer_norm_grad_stats", {x, y, stats, {2 * cols}}, {rms}, summed},
                 LayerNormParams{.rows = rows, .cols = cols});
    }
  });
}

TEST_CASE("cpu loops: group norm") {
  for (const DType dtype : floats)
    for (const auto& g :
         {GroupNormParams{{}, 2, 50, 32, 8, 16, 8}, GroupNormParams{{}, 3, 7, 6, 3, 4, 1},
          GroupNormParams{{}, 1, 300, 160, 10, 300, 2},
          GroupNormParams{{}, 2, 1, 2048, 64, 1, 8}}) {
      const uint32_t n = g.samples * g.rows * g.channels, groups = g.samples * g.channels / g.width,
                     chunks = (g.rows + g.chunk_rows - 1) / g.chunk_rows;
      const LoopArgument x{n, dtype, Fill::specials}, y{n, dtype}, weight{g.channels};
      const LoopArgument stats{2 * groups, f32, Fill::positive};
      const uint32_t blocks = chunks * g.width / g.merged;
      check_loop({"group_norm_stats", {x, {groups * blocks * 3}}, {}, summed}, g);
      check_loop({"group_norm", {x, stats, weight, weight, y}, {}, summed}, g);
      check_loop({"group_norm_grad_stats",
                  {x, y, stats, {2 * g.samples * chunks * g.channels}},
                  {},
                  summed},
                 g);
      check_loop({"group_norm_grad", {x, y, stats, weight, stats, y}, {}, summed}, g);
    }
  for (const uint32_t blocks : {1u, 64u, 65u, 200u}) {
    const LoopArgument moments{3 * 3 * blocks, f32, Fill::positive};
    const uint32_t runs = (blocks + GROUP_NORM_BLOCKS - 1) / GROUP_NORM_BLOCKS;
    for (uint32_t last = 0; last < (runs == 1 ? 2 : 1); ++last)
      check_loop({"group_norm_combine", {moments, {3 * 3 * runs}}, {last}, summed},
                 GroupNormCombineParams{{}, 3, blocks, 1e-5f});
  }
}

TEST_CASE("cpu loops: softmax") {
  each([](uint32_t rows, uint32_t cols, const LoopArgument& x) {
    const LoopArgument y{rows * cols, x.dtype}, wide{rows * cols};
    for (const uint32_t log : {0u, 1u}) {
      check_loop({"softmax", {x, y}, {log}, summed}, SoftmaxParams{{}, rows, cols});
      check_loop({"softmax", {x, wide}, {log}, summed}, SoftmaxParams{{}, rows, cols});
      check_loop({"softmax_grad", {y, x, y}, {log}, 1e-4}, SoftmaxParams{{}, rows, cols});
    }
  });
}

TEST_CASE("cpu loops: losses of classes") {
  each([](uint32_t rows, uint32_t cols, const LoopArgument& x) {
    const LoopArgument y{rows * cols, x.dtype}, row{rows, f32, Fill::positive};
    const LoopArgument weight{cols, f32, Fill::positive};
    LoopArgument classes{rows, i32, Fill::given};
    for (uint32_t i = 0; i < rows; ++i)  // some of them are no classes
      classes.values.push_back(i % 9 == 1 ? -100.0f : static_cast<float>(i % (cols + 2)) - 1);
    const ClassLossParams nll{.rows = rows, .cols = cols, .ignore_index = -100};
    check_loop({"nll_loss", {x, classes, {rows}}}, nll);
    check_loop({"nll_loss_grad", {classes, row, y}}, nll);
    for (const float smoothing : {0.0f, 0.1f}) {
      check_loop({"cross_entropy", {x, classes, {rows}, {rows}}, {}, summed},
                 ClassLossParams{{}, rows, cols, smoothing, -100});
      check_loop({"cross_entropy_grad", {x, classes, row, row, y}, {}, summed},
                 ClassLossParams{{}, rows, cols, smoothing, -100});
      const LoopArgument shares{rows * cols, x.dtype, Fill::bits};
      for (const LoopArgument& target : {classes, shares})
        for (const uint32_t weighted : {0u, 1u}) {
          check_loop({"soft_cross_entropy",
                      {x, target, weight, {rows}, {rows}, {rows}},
                      {weighted},
                      summed},
                     ClassLossParams{{}, rows, cols, smoothing, -100});
          check_loop({"soft_cross_entropy_grad",
                      {x, target, weight, row, row, row, y},
                      {weighted},
                      summed},
                     ClassLossParams{{}, rows, cols, smoothing, -100});
        }
    }
  });
}

TEST_SUITE_END();
