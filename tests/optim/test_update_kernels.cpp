// The kernels of an optimizer's update on Vulkan, compared with the reference backend.
#include <limits>

#include "core/blocks/block_type.h"
#include "tests/fixtures/compare_kernels.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

// Returns rows of chunks of at most `chunk` elements of a parameter that begins at 8; its gradient
// begins at `grad`. The last row has no gradient. The numbers of the chunks go down.
std::vector<float> chunk_rows(uint32_t n, uint32_t chunk, uint32_t grad) {
  std::vector<float> rows;
  uint32_t number = (n + chunk - 1) / chunk;
  const auto row = [&](uint32_t begin, uint32_t at, uint32_t size) {
    for (const uint32_t value : {begin, at, size, number--})
      rows.push_back(static_cast<float>(value));
  };
  for (uint32_t at = 0; at < n; at += chunk) row(8 + at, grad + at, std::min(chunk, n - at));
  row(8, 0, 0);
  return rows;
}

// With many updates, there are more than f32 counts, and parameters with odd chunks missed some.
std::vector<float> update_state(float updates, float found_inf = 0) {
  std::vector<float> s(STATE_MISSED(8), 0);
  if (updates > 100) {
    s[STATE_UPDATES + STATE_HIGH] = 2;
    for (int chunk = 1; chunk < 8; chunk += 2) {
      s[static_cast<size_t>(STATE_MISSED(chunk))] = updates - 3;
      s[static_cast<size_t>(STATE_MISSED(chunk)) + 1] = 2;
    }
  }
  s[STATE_SCALE] = 1024;
  s[STATE_GOOD] = 1;
  s[STATE_FOUND_INF] = found_inf;
  s[STATE_UPDATES] = updates;
  s[STATE_LR_FACTOR] = 0.5f;
  s[STATE_GRAD_FACTOR] = 0.25f;
  return s;
}

}  // namespace

TEST_CASE("kernels: grad_stats") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 1e-4;
  for (const uint32_t grad : {0u, 16u, 3u})
    for (uint32_t n : {1u, 100u, 5000u}) {
      const auto rows = chunk_rows(n, 1024, grad);
      const auto count = static_cast<uint32_t>(rows.size() / CHUNK_ROW);
      const GradStatsParams p{.first = 0, .rows = count, .chunks = count};
      auto g = values(grad + n);
      const auto run = [&] {
        devices.run("grad_stats",
                    {in(DType::f32, g), in(DType::i32, rows), out(DType::f32, 3 * count)}, p, {},
                    {count});
      };
      run();
      for (float bad :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        g[grad + n / 2] = bad;
        run();
      }
      // Squares that would overflow, or vanish.
      for (const float size : {0x1p100f, 0x1p-80f, 0.0f}) {
        g = values(grad + n, -size, size);
        run();
      }
    }
}

TEST_CASE("kernels: value_range") {
  KernelComparison& devices = KernelComparison::instance();
  for (const DType dtype : {DType::f32, DType::f16})
    for (const uint32_t n : {1u, 7u, 64u, 20000u})
      for (const uint32_t scaled : {0u, 1u}) {
        auto x = values(n, -1, 1, n);
        for (uint32_t i = 0; i < n; i += 3) x[i] *= 0x1p-15f;
        for (uint32_t i = 1; i < n; i += 11) x[i] = 0;
        if (n > 1) x[n / 2] = -std::numeric_limits<float>::infinity();
        if (n > 7) x[n - 2] = x[3] = std::numeric_limits<float>::quiet_NaN();
        const ValueRangeParams p{
            .n = n, .chunk = 8192, .least_normal = 0x1p-14f, .scaled = scaled, .rank = 1};
        devices.run("value_range",
                    {in(dtype, x), inout(DType::i32, {1, 2, 3, 4, 5, 6, 7, 8}),
                     in(DType::f32, update_state(0))},
                    p, {1}, {(n + 8191) / 8192});
      }
  // Every other column of a matrix, transposed; and a repeated row.
  for (const auto& [rows, columns] : {std::pair{2u, 15u}, {0u, 1u}}) {
    const ValueRangeParams p{.n = 60,
                             .chunk = 16,
                             .least_normal = 0x1p-14f,
                             .rank = 2,
                             .shape = {6, 10},
                             .stride = {rows, columns}};
    devices.run("value_range",
                {in(DType::f16, values(160)), inout(DType::i32, std::vector<float>(RANGE_SIZE)),
                 in(DType::f32, update_state(0))},
                p, {0}, {4});
  }
}

TEST_CASE("kernels: range_history") {
  KernelComparison& devices = KernelComparison::instance();
  const std::vector<float> rows = {
      1, 0, 5, 2, 3, 9, 8, 0,  // a NaN
      0, 2, 0, 1, 0, 9, 8, 0,  // infinities, and more denormal values than normal ones
      0, 0, 0, 0, 7, 0, 0, 0,  // zeros
      0, 0, 0, 0, 0, 0, 0, 0,  // it was not counted
  };
  std::vector<float> known(4 * HISTORY_SIZE), fresh(4 * HISTORY_SIZE);
  for (size_t i = 0; i < known.size(); ++i) known[i] = static_cast<float>(i % 7);
  for (const uint32_t step : {0u, 1u, 9u})
    for (const auto& history : {known, fresh})
      devices.run(
          "range_history",
          {inout(DType::i32, rows), inout(DType::i32, history), in(DType::f32, update_state(0))},
          RangeHistoryParams{.rows = 4, .step = step, .update = 4}, {}, {4});
}

TEST_CASE("kernels: update_prepare") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 2e-5;
  for (uint32_t schedule = 0; schedule <= SCHEDULE_ONE_CYCLE; ++schedule)
    for (float updates : {0.0f, 4.0f, 37.0f, 250.0f})
      for (float overflow : {0.0f, 1.0f})
        for (uint32_t dynamic : {0u, 1u}) {
          // The gradients of the second parameter may be much larger or smaller, or none.
          const float scale = updates == 0   ? 0
                              : updates == 4 ? 1
                              : updates < 40 ? SQUARES_DOWN
                                             : SQUARES_UP;
          const UpdatePrepareParams p{.chunks = 3,
                                      .weight = 4,
                                      .max_norm = updates > 4 ? 0.001f : 0,
                                      .schedule = schedule,
                                      .warmup = 5,
                                      .total = 200,
                                      .period = 30,
                                      .floor_factor = 0.1f,
                                      .gamma = schedule == SCHEDULE_RESTARTS ? 2 : 0.7f,
                                      .peak = 59.5f,
                                      .milestones = {4, 30, 37, 38, 300, ~0u, ~0u, ~0u},
                                      .dynamic = dynamic,
                                      .keep_bad = 1,
                                      .hysteresis = 1,
                                      .interval = 2,
                                      .growth = 2,
                                      .backoff = 0.5f,
                                      .min_scale = 1,
                                      .max_scale = 65536};
          for (uint32_t part = PREPARE_ALL; part <= PREPARE_JUDGE; ++part)
            devices.run(
                "update_prepare",
                {in(DType::f32, part == PREPARE_CHECK
                                    ? std::vector<float>{0, overflow, 0}
                                    : std::vector<float>{1, 2, 3, 0, overflow, 0, 1, scale, 1}),
                 inout(DType::f32, update_state(updates))},
                p, {part}, {1});
        }
}

TEST_CASE("kernels: update_prepare of windows, micro-batch by micro-batch") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 2e-5;
  for (const float overflow : {0.0f, 1.0f})
    for (const float weight : {0.0f, 2.5f})
      for (const float voided : {0.0f, 2.0f})
        for (const uint32_t part : {PREPARE_MICRO_BATCH, PREPARE_WINDOW}) {
          const UpdatePrepareParams p{.chunks = 3,
                                      .weight = 1.5f,
                                      .max_norm = 0.001f,
                                      .dynamic = 1,
                                      .hysteresis = 1,
                                      .interval = 2,
                                      .growth = 2,
                                      .backoff = 0.5f,
                                      .min_scale = 1,
                                      .max_scale = 65536};
          std::vector<float> before = update_state(7, 1);
          before[STATE_WINDOW_WEIGHT] = weight;
          before[STATE_WINDOW_VOIDED] = voided;
          before[STATE_VOIDED] = voided + 5;
          devices.run(
              "update_prepare",
              {in(DType::f32, {1, 2, 3, 0, overflow, 0, 1, 1, 1}), inout(DType::f32, before)}, p,
              {part}, {1});
        }
}

TEST_CASE("kernels: count_missed") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 0;
  for (const float found_inf : {0.0f, 1.0f})
    for (const float updates : {1.0f, 1000.0f}) {
      std::vector<float> before = update_state(updates, found_inf);
      before[STATE_MISSED(2)] = 16777215;
      devices.run("count_missed",
                  {in(DType::f32, {1, 2, 3, 4, 0, 0, 0, 0, 0, 1, 0, SQUARES_UP}),
                   inout(DType::f32, before)},
                  GradStatsParams{.chunks = 4}, {}, {4});
    }
}

TEST_CASE("kernels: window_fold") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 0;
  constexpr uint32_t shift = 5;
  for (const uint32_t at : {0u, 16u, 3u})
    for (const uint32_t n : {0u, 1u, 13u, 1003u})
      for (const float found_inf : {0.0f, 1.0f}) {
        const auto rows = chunk_rows(n, REWIND_FLAT << shift, at);
        const auto count = static_cast<uint32_t>(rows.size() / CHUNK_ROW);
        devices.run("window_fold",
                    {inout(DType::f32, values(8 + n)), in(DType::f32, values(at + n + 1, -1, 1, 2)),
                     in(DType::i32, rows), in(DType::f32, update_state(3, found_inf))},
                    WindowFoldParams{.rows = count, .shift = shift}, {}, {count << shift});
      }
}

TEST_CASE("kernels: window_add") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 0;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const uint32_t n : {1u, 8u, 13u, 1003u})
      for (const float size : {1.0f, 1e-3f, 1e5f})  // size of the gradients: 1e5 overflows in f16
        for (const uint32_t compensated : {0u, 1u})
          devices.run("window_add",
                      {inout(dtype, values(n)), inout(dtype, values(n, -1e-3f, 1e-3f, 5)),
                       in(DType::f32, values(n, -size, size, 2))},
                      WindowAddParams{.n = n}, {compensated},
                      {(n + REWIND_FLAT - 1) / REWIND_FLAT});
}

TEST_CASE("kernels: sgd and adam") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 2e-5;
  constexpr uint32_t shift = 5;  // 256 elements per chunk
  for (const uint32_t at : {0u, 16u, 3u})
    for (uint32_t n : {0u, 1u, 13u, 1003u})
      for (float updates : {1.0f, 2.0f, 1000.0f})
        for (uint32_t flags = 0; flags < 4; ++flags) {
          const auto param = inout(DType::f32, values(8 + n));
          const auto grad = in(DType::f32, values(at + n + 1, -1, 1, 2));
          const auto first = inout(DType::f32, values(8 + n, -0.1f, 0.1f, 3));
          const auto second = inout(DType::f32, values(8 + n, 0.1f, 1, 4));
          const auto rows = chunk_rows(n, REWIND_FLAT << shift, at);
          const auto count = static_cast<uint32_t>(rows.size() / CHUNK_ROW);
          const auto t = in(DType::i32, rows);
          const auto s = in(DType::f32, update_state(updates, flags == 3));
          devices.run("sgd", {param, grad, first, t, s},
                      SgdParams{.rows = count,
                                .shift = shift,
                                .lr = 0.1f,
                                .momentum = flags == 0 ? 0 : 0.9f,
                                .dampening = flags == 1 ? 0.1f : 0,
                                .weight_decay = 0.01f,
                                .nesterov = flags == 2,
                                .maximize = flags == 1},
                      {}, {count << shift});
          devices.run("adam", {param, grad, first, second, t, s},
                      AdamParams{.rows = count,
                                 .shift = shift,
                                 .lr = 0.01f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.999f,
                                 .eps = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .decoupled = flags & 1},
                      {}, {count << shift});
        }
}

TEST_CASE("kernels: adama") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 2e-5;
  constexpr uint32_t shift = 5;
  for (const uint32_t at : {0u, 3u})
    for (uint32_t n : {0u, 1u, 13u, 1003u})
      for (const float found_inf : {0.0f, 1.0f})
        for (const float decay : {1.0f, 0.9f}) {
          const auto rows = chunk_rows(n, REWIND_FLAT << shift, at);
          const auto count = static_cast<uint32_t>(rows.size() / CHUNK_ROW);
          const auto m = inout(DType::f32, values(8 + n, -0.1f, 0.1f, 3));
          const auto v = inout(DType::f32, values(8 + n, 0.1f, 1, 4));
          const auto s = in(DType::f32, update_state(103, found_inf));
          devices.run("adama_fold",
                      {in(DType::f32, values(at + n + 1, -1, 1, 2)), m, v, in(DType::i32, rows), s},
                      AdamaFoldParams{.rows = count,
                                      .shift = shift,
                                      .beta1 = 0.9f,
                                      .beta2 = 0.999f,
                                      .decay1 = decay,
                                      .decay2 = decay},
                      {}, {count << shift});
          devices.run("adama",
                      {inout(DType::f32, values(8 + n)), in(DType::f32, m.values),
                       in(DType::f32, v.values), s},
                      AdamaParams{.n = 8 + n,
                                  .own = 3,
                                  .lr = 0.01f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.999f,
                                  .eps = 1e-8f,
                                  .weight_decay = 0.1f},
                      {}, {(8 + n + REWIND_FLAT - 1) / REWIND_FLAT});
        }
}

TEST_CASE("kernels: adam_8bit") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 2e-5;
  std::vector<float> maps;
  for (const bool is_signed : {true, false}) {
    const auto map = dynamic_map(is_signed), bounds = dynamic_bounds(map);
    maps.insert(maps.end(), map.begin(), map.end());
    maps.insert(maps.end(), bounds.begin(), bounds.end());
  }
  devices.code_tolerance = 1;
  for (uint32_t n : {1u, 255u, 256u, 1003u})
    for (uint32_t flags = 0; flags < 3; ++flags) {
      const uint32_t blocks = (n + ADAM_8BIT_BLOCK - 1) / ADAM_8BIT_BLOCK;
      const Adam8bitParams p{.n = n,
                             .own = 1,
                             .lr = 0.01f,
                             .beta1 = 0.9f,
                             .beta2 = 0.999f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .decoupled = flags & 1};
      const auto run = [&](const std::vector<float>& most) {
        devices.run(
            "adam_8bit",
            {inout(DType::f32, values(n)), in(DType::f32, values(n, -1, 1, 2)),
             inout(DType::u8, integers(n, 0, 256, 3)), inout(DType::u8, integers(n, 1, 256, 4)),
             inout(DType::f32, most), inout(DType::f32, most), in(DType::f32, maps),
             in(DType::f32, update_state(107, flags == 2))},
            p, {}, {blocks});
      };
      run(values(blocks, 0.5f, 2, 5));
      run(std::vector<float>(blocks, 0));  // at first
    }
  devices.code_tolerance = 0;
}

TEST_CASE("kernels: moment_update") {
  KernelComparison& devices = KernelComparison::instance();
  devices.tolerance = 2e-5;
  constexpr uint32_t shift = 5;
  for (const uint32_t at : {0u, 3u})
    for (uint32_t n : {0u, 13u, 1003u})
      for (uint32_t rule = 0; rule <= MOMENT_AMSGRAD; ++rule)
        for (uint32_t flags = 0; flags < 2; ++flags)
          for (const float b : {0.0f, 0.5f})
            for (const float found_inf : {0.0f, 1.0f}) {
              const auto rows = chunk_rows(n, REWIND_FLAT << shift, at);
              const auto count = static_cast<uint32_t>(rows.size() / CHUNK_ROW);
              devices.run(
                  "moment_update",
                  {inout(DType::f32, values(8 + n)), in(DType::f32, values(at + n + 1, -1, 1, 2)),
                   inout(DType::f32, values(8 + n, 0.1f, 1, 3)),
                   inout(DType::f32, values(8 + n, 0.1f, 1, 4)),
                   inout(DType::f32, values(8 + n, 0.1f, 0.3f, 5)), in(DType::i32, rows),
                   in(DType::f32, update_state(n == 13 ? 3 : 103, found_inf))},
                  MomentUpdateParams{.rows = count,
                                     .shift = shift,
                                     .lr = 0.1f,
                                     .weight_decay = 0.01f,
                                     .a = 0.9f,
                                     .b = b,
                                     .eps = 1e-3f,
                                     .flags = flags},
                  {rule}, {count << shift});
            }
}
