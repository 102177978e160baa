// The vector loops of recurrent cells, positions and losses of pairs and sequences, compared with
// those of the reference.
#include <doctest/doctest.h>

#include "backends/reference/reference_backend.h"
#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"
#include "tests/fixtures/kernel_runner.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

LoopArgument given(std::vector<float> values, DType dtype = f32) {
  return {values.size(), dtype, Fill::given, std::move(values)};
}

// Returns n values from low to high.
std::vector<float> spread(size_t n, float low, float high) {
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i)
    values.push_back(low + (high - low) * static_cast<float>(i * 7919 % 1000) * 0.001f);
  return values;
}

// Checks the call, and returns what the reference leaves in its binding `result`.
template <class P>
LoopArgument checked(const LoopCase& c, const P& params, size_t result) {
  check_loop(c, params);
  KernelRunner reference(make_reference_backend());
  std::vector<Binding> bindings;
  for (const LoopArgument& argument : c.arguments)
    bindings.push_back(reference.upload(argument.values, argument.dtype));
  KernelCall call;
  call.kernel = c.kernel;
  call.bindings = bindings;
  call.params = std::as_bytes(std::span(&params, 1));
  reference.backend().run(call);
  return given(reference.download(bindings[result]), bindings[result].dtype);
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu loops: recurrent cells") {
  for (const DType dtype : floats)
    for (const Fill fill : fills)
      for (const uint32_t hidden : {1u, 17u, 1100u}) {
        const uint32_t rows = 3, n = rows * hidden;
        const auto x = [&](uint32_t gates) { return LoopArgument{gates * n, dtype, fill}; };
        const LoopArgument y{n, dtype}, act{4 * n, dtype, Fill::positive};
        const CellParams p{{}, rows, hidden};
        check_loop({"lstm_cell",
                    {x(4), {4 * n, dtype}, {4 * hidden}, {n}, y, y, {4 * n, dtype}},
                    {},
                    1e-5},
                   p);
        check_loop({"lstm_cell_grad", {act, y, y, x(1), y, {n}, {4 * n, dtype}}, {}, 1e-5}, p);
        check_loop(
            {"gru_cell", {x(3), {3 * n, dtype}, {3 * hidden}, y, y, {4 * n, dtype}}, {}, 1e-5}, p);
        check_loop(
            {"gru_cell_grad", {act, y, x(1), y, {n}, {3 * n, dtype}, {3 * n, dtype}}, {}, 1e-5}, p);
      }
}

TEST_CASE("cpu loops: rotary positions") {
  const uint32_t batch = 2, heads = 3, rows = 70, dim = 24, n = batch * heads * rows * dim;
  for (const DType dtype : floats)
    for (const uint32_t first : {0u, 100000u})
      for (const uint32_t interleaved : {0u, 1u})
        for (const uint32_t backward : {0u, 1u}) {
          RotaryParams p{.offset = {1, 1, 0, 2},
                         .heads = heads,
                         .rows = rows,
                         .dim = dim,
                         .pairs = n / 2,
                         .x_stride = {rows * heads * dim, dim, heads * dim, 1},
                         .first = first,
                         .interleaved = interleaved,
                         .backward = backward,
                         .scale = 1.25f};
          const LoopArgument frequencies = given(spread(dim / 2 + 1, 1e-4f, 1), f32);
          std::vector<float> places;
          for (uint32_t i = 0; i < batch * rows; ++i)
            places.push_back(static_cast<float>(i * 7 % 45) + static_cast<float>(first));
          for (const uint32_t placed : {0u, 1u}) {
            p.placed = placed;
            check_loop({"rotary",
                        {{n + 1, dtype, Fill::specials},
                         frequencies,
                         given(places, DType::i32),
                         {n + 2, dtype}}},
                       p);
          }
        }
}

TEST_CASE("cpu loops: losses of pairs") {
  const uint32_t n = 3000;
  for (const DType dtype : floats)
    for (uint32_t kind = LOSS_MSE; kind <= LOSS_FOCAL; ++kind)
      for (const uint32_t weighted : {0u, 1u}) {
        if (weighted == 1 && kind != LOSS_BCE_LOGITS) continue;
        CAPTURE(kind);
        const bool is_probability = kind == LOSS_BCE;
        const LoopArgument x =
            given(is_probability ? spread(n, 0.01f, 0.99f) : spread(n, -6, 5), dtype);
        const LoopArgument t = given(spread(n + 1, 0, 1), dtype), weight{7, f32, Fill::positive};
        const LoopArgument special{n, dtype, Fill::specials}, y{n, dtype};
        const float a = kind == LOSS_FOCAL ? 0.25f : 0.8f;
        for (const LoopArgument& input : {x, special}) {
          check_loop({"pair_loss", {input, t, weight, {n}}, {kind, weighted}, 3e-5},
                     PairLossParams{{0, 1}, n, 7, 0, a, 2});
          for (const uint32_t wrt : {0u, 1u})
            for (const uint32_t one : {0u, 1u})
              check_loop(
                  {"pair_loss_grad", {input, t, weight, {n}, y}, {kind, weighted, wrt}, 1e-5},
                  PairLossParams{{0, 1}, n, 7, one, a, 2});
        }
      }
}

TEST_CASE("cpu loops: connectionist temporal classification in parts") {
  const uint32_t samples = 4, frames = 21, classes = 6, labels = 5, width = 2 * labels + 2;
  const uint32_t middle = 9, n = frames * samples;
  CtcParams p{{}, frames, samples, classes, labels, width, 0, frames, 0};
  std::vector<float> logs = spread(n * classes, -4, -0.3f);
  logs[5] = -INFINITY, logs[17] = NAN;
  const LoopArgument x = given(logs);
  const LoopArgument states =
      checked({"ctc_states",
               {given({1, 2, 2, 3, 1, 4, 4, 4, 1, 1, 2, 9, -3, 1, 1, 5, 1, 2, 3, 4}, i32),
                given({21, 30, 13, 0}, i32), given({5, 3, 5, 0}, i32),
                given(std::vector<float>(samples * 4 * width), i32)}},
              p, 3);
  LoopArgument alpha = given(std::vector<float>(n * width));
  p.end = middle;
  alpha = checked({"ctc_alpha", {x, states, alpha}, {}, 1e-5}, p, 2);
  p.begin = middle, p.end = frames;
  alpha = checked({"ctc_alpha", {x, states, alpha}, {}, 1e-5}, p, 2);
  const LoopArgument loss =
      checked({"ctc_total", {states, alpha, given(std::vector<float>(samples))}, {}, 1e-5}, p, 2);
  LoopArgument carry = given(std::vector<float>(samples * width)),
               posterior = given(std::vector<float>(n * width));
  check_loop({"ctc_beta", {x, states, alpha, loss, carry, posterior}, {}, 2e-5}, p);
  carry = checked({"ctc_beta", {x, states, alpha, loss, carry, posterior}, {}, 2e-5}, p, 4);
  p.begin = 0, p.end = middle;
  posterior = checked({"ctc_beta", {x, states, alpha, loss, carry, posterior}, {}, 2e-5}, p, 5);
  check_loop({"ctc_grad",
              {states, posterior, given({1, 0.5f, 0, 2}), given(std::vector<float>(n * classes))},
              {},
              1e-5},
             p);
}

TEST_CASE("cpu loops: transducers in parts") {
  const uint32_t samples = 4, frames = 19, width = 8, n = samples * frames * width;
  RnntParams p{{}, samples, frames, width, 0, 10};
  std::vector<float> logs = spread(n, -4, -0.3f);
  logs[2 * frames * width + 5] = NAN;
  const LoopArgument blank = given(logs), label = given(spread(n + 13, -3, -0.5f)),
                     lengths = given({19, 7, 12, 3, 19, 7, 0, 0}, i32);
  LoopArgument alpha = given(std::vector<float>(n));
  alpha = checked({"rnnt_alpha", {blank, label, lengths, alpha}, {}, 1e-5}, p, 3);
  p.begin = 10, p.end = frames + width - 1;
  alpha = checked({"rnnt_alpha", {blank, label, lengths, alpha}, {}, 1e-5}, p, 3);
  LoopArgument loss = checked(
      {"rnnt_total", {blank, lengths, alpha, given(std::vector<float>(samples))}, {}, 1e-5}, p, 3);
  loss.values[1] = INFINITY;
  const LoopArgument dloss = given({1, 0.5f, 0, 2});
  LoopArgument carry = given(std::vector<float>(samples * width)),
               gradient = given(std::vector<float>(2 * n));
  for (int part = 0; part < 2; ++part) {
    const LoopCase beta{
        "rnnt_beta", {blank, label, lengths, alpha, loss, dloss, carry, gradient}, {}, 3e-5};
    gradient = checked(beta, p, 7);
    carry = checked(beta, p, 6);
    p.end = p.begin, p.begin = 0;
  }
}

TEST_SUITE_END();
