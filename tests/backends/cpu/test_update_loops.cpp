// The vector loops of optimizers, compared with those of the reference.
#include <doctest/doctest.h>

#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

constexpr uint32_t update_size = 5000;
// A row has the begin in the parameters, the begin in the gradients, size and number. One chunk has
// no gradient.
const LoopArgument chunk_table{
    16,
    DType::i32,
    Fill::given,
    {0, 30, 2048, 6, 2048, 3000, 1001, 8, 3049, 0, 0, 5, 3049, 4010, 1951, 7}};
const LoopArgument update_values{update_size}, grads{6000},
    positive{update_size, DType::f32, Fill::positive};
const LoopArgument partial{300};

// Returns the state at update number `updates`, or at one that is skipped.
LoopArgument state_argument(float updates, bool skips = false) {
  std::vector<float> slots(STATE_MISSED(9), 0.0f);
  slots[STATE_SCALE] = 64;
  slots[STATE_UPDATES] = updates;
  // At a late update there are more than f32 counts, and one parameter missed some.
  if (updates > 1) slots[STATE_UPDATES + STATE_HIGH] = slots[STATE_MISSED(7) + 1] = 3;
  if (updates > 1) slots[STATE_MISSED(7)] = 20;
  slots[STATE_FOUND_INF] = skips ? 1.0f : 0.0f;
  slots[STATE_LR_FACTOR] = 0.5f;
  slots[STATE_GRAD_FACTOR] = 0.7f;
  return {STATE_MISSED(9), DType::f32, Fill::given, slots};
}

const LoopArgument states[] = {state_argument(1), state_argument(30), state_argument(30, true)};

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu update loops: statistics of gradients") {
  for (const Fill fill : {Fill::numbers, Fill::specials})
    check_loop({"grad_stats", {{6000, DType::f32, fill}, chunk_table, partial}},
               GradStatsParams{{}, 1, 3, 100});
  for (const float size : {0x1p100f, 0x1p-80f, 0.0f})  // squares that would overflow, or vanish
    check_loop(
        {"grad_stats",
         {{6000, DType::f32, Fill::given, std::vector<float>(6000, size)}, chunk_table, partial}},
        GradStatsParams{{}, 0, 4, 100});
}

TEST_CASE("cpu update loops: rules over a table of chunks") {
  for (const LoopArgument& s : states) {
    for (const float momentum : {0.0f, 0.9f})
      for (const uint32_t flag : {0u, 1u})
        check_loop({"sgd", {update_values, grads, update_values, chunk_table, s}},
                   SgdParams{{}, 0, 4, 8, 0.1f, momentum, 0.2f, 0.01f, flag, flag});
    if (&s == &states[0])  // in the first update the momentum may hold anything
      check_loop(
          {"sgd",
           {update_values, grads, {update_size, DType::f32, Fill::specials}, chunk_table, s}},
          SgdParams{{}, 0, 4, 8, 0.1f, 0.9f, 0, 0, 0, 0});
    for (const uint32_t decoupled : {0u, 1u})
      check_loop({"adam", {update_values, grads, update_values, positive, chunk_table, s}},
                 AdamParams{{}, 1, 3, 8, 0.1f, 0.9f, 0.99f, 1e-8f, 0.01f, decoupled});
    for (uint32_t rule = MOMENT_RMSPROP; rule <= MOMENT_AMSGRAD; ++rule)
      for (const uint32_t flags : {0u, 1u})
        check_loop({"moment_update",
                    {update_values, grads, positive, positive, positive, chunk_table, s},
                    {rule},
                    rule == MOMENT_RMSPROP ? 1e-4 : 2e-6},
                   MomentUpdateParams{{}, 0, 4, 8, 0.1f, 0.01f, 0.8f, 0.9f, 1e-6f, flags});
    check_loop({"adama_fold", {grads, update_values, positive, chunk_table, s}},
               AdamaFoldParams{{}, 0, 4, 8, 0.9f, 0.99f, 0.9f, 1});
    check_loop({"window_fold", {update_values, grads, chunk_table, s}},
               WindowFoldParams{{}, 0, 4, 8});
    LambParams lamb{{}, 1, 3, 5, 40, 0.1f, 0.9f, 0.99f, 1e-6f, 0.01f, 3, 0};
    check_loop(
        {"lamb_norms", {update_values, grads, update_values, positive, chunk_table, s, partial}},
        lamb);
    const LoopArgument first{4, DType::i32, Fill::given, {0, 3, 3, 40}};
    for (lamb.adapt = 0; lamb.adapt < 2; ++lamb.adapt)
      check_loop({"lamb_ratio", {{80, DType::f32, Fill::positive}, first, s, {40}}}, lamb);
    check_loop({"lamb", {update_values, update_values, positive, chunk_table, {40}, s}}, lamb);
  }
}

TEST_CASE("cpu update loops: dense rules, averages and windows") {
  const LoopArgument start{1, DType::f32, Fill::given, {0}};
  for (const LoopArgument& s : states) {
    check_loop({"adama", {update_values, update_values, positive, s}},
               AdamaParams{{}, update_size, 7, 0.1f, 0.9f, 0.99f, 1e-8f, 0.01f});
    for (const uint32_t nesterov : {0u, 1u})
      check_loop({"muon_momentum", {update_values, update_values, update_values, s}},
                 MuonParams{.n = update_size, .momentum = 0.9f, .nesterov = nesterov});
    check_loop({"muon", {update_values, update_values, s}},
               MuonParams{.n = update_size, .lr = 0.1f, .weight_decay = 0.01f, .ratio = 0.3f});
    for (const uint32_t every : {1u, 5u, 7u}) {
      for (uint32_t kind = AVERAGE_DECAY; kind <= AVERAGE_EQUAL; ++kind)
        check_loop({"ema", {update_values, update_values, start, s}},
                   AverageParams{.n = update_size, .every = every, .decay = 0.95f, .kind = kind});
      check_loop({"lookahead", {update_values, update_values, start, s}},
                 AverageParams{.n = update_size, .every = every, .alpha = 0.4f});
    }
  }
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const uint32_t compensated : {0u, 1u})
      check_loop({"window_add",
                  {{update_size, dtype}, {update_size, dtype}, update_values},
                  {compensated}},
                 WindowAddParams{{}, update_size});
}

TEST_CASE("cpu update loops: Adam with states of 8 bits") {
  const auto codes = [](uint64_t count) {
    std::vector<float> all;
    for (uint64_t i = 0; i < count; ++i) all.push_back(static_cast<float>(i * 7 % 256));
    return LoopArgument{count, DType::u8, Fill::given, all};
  };
  std::vector<float> maps;
  for (const float low : {-1.0f, 0.0f}) {  // for m and for v, each with the bounds between codes
    for (int i = 0; i < 256; ++i) maps.push_back(low + (1 - low) * static_cast<float>(i) / 255);
    for (int i = 0; i < 256; ++i)
      maps.push_back(low + (1 - low) * (static_cast<float>(i) + 0.4903f) / 255);
  }
  for (const LoopArgument& s : states)
    check_loop({"adam_8bit",
                {update_values,
                 update_values,
                 codes(update_size),
                 codes(update_size),
                 {20, DType::f32, Fill::positive},
                 {20, DType::f32, Fill::positive},
                 {1024, DType::f32, Fill::given, maps},
                 s}},
               Adam8bitParams{{}, update_size, 7, 0.1f, 0.9f, 0.99f, 1e-8f, 0.01f, 1});
}

TEST_CASE("cpu update loops: Adafactor, factored and not") {
  constexpr uint32_t matrices = 2, rows = 150, cols = 130, count = matrices * rows * cols;
  const AdafactorParams moment{.matrices = matrices,
                               .rows = rows,
                               .cols = cols,
                               .chunks = 3,
                               .own = 7,
                               .beta2_decay = -0.8f};
  const LoopArgument by_row{matrices * rows, DType::f32, Fill::positive}, gradients{count},
      by_col{matrices * cols, DType::f32, Fill::positive};
  for (const LoopArgument& s : states) {
    check_loop({"adafactor_rows", {gradients, by_row, s}}, moment);
    check_loop({"adafactor_columns", {gradients, {matrices * 3 * cols}}}, moment);
    check_loop(
        {"adafactor_combine", {{matrices * 3 * cols, DType::f32, Fill::positive}, by_col, s}},
        moment);
    for (const uint32_t factored : {0u, 1u})
      for (const char* kernel : {"adafactor_norms", "adafactor"}) {
        const LoopArgument estimate{factored ? matrices * rows : count, DType::f32, Fill::positive};
        check_loop(
            {kernel,
             {gradients,
              gradients,
              estimate,
              by_col,
              {matrices, DType::f32, Fill::positive},
              s,
              {6, DType::f32, Fill::positive}},
             {factored}},
            AdafactorParams{
                {}, count, matrices, rows, cols, 3, 7, 0.1f, 0.01f, -0.8f, 1e-30f, 1e-3f, 1, 3});
      }
  }
}

TEST_CASE("cpu update loops: the range of values") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const uint32_t flat : {0u, 1u}) {
      const ValueRangeParams p{.offset = {},
                               .n = 40000,
                               .chunk = 1024,
                               .least_normal = 0x1p-20f,
                               .scaled = 1,
                               .rank = 2,
                               .shape = {200, 200},
                               .stride = {1, 200}};
      check_loop({"value_range",
                  {{40000, dtype, Fill::specials},
                   {RANGE_SIZE, DType::i32, Fill::bits},
                   state_argument(1)},
                  {flat},
                  0},
                 p);
    }
}

TEST_SUITE_END();
