// LSTM and GRU as modules: names, layouts, states, dropout, checkpoint segments.
#include "core/autograd/checkpoint.h"
#include "nn/recurrent.h"
#include "ops/autocast.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

Tensor sequence(const Shape& shape, int seed = 0) {
  return tensor(some_values(static_cast<int>(shape.numel()), seed), shape);
}

std::vector<Values> take_gradients(const Module& module) {
  std::vector<Values> all;
  for (Tensor p : module.parameters()) {
    all.push_back(p.grad().to_vector());
    p.set_grad({});
  }
  return all;
}

}  // namespace

TEST_CASE("recurrent: PyTorch's names and shapes" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const LSTM lstm(3, 5, {.layers = 2, .bidirectional = true});
  std::string names;
  for (const NamedTensor& p : lstm.named_parameters())
    names += p.name + " " + p.tensor.shape().str() + "\n";
  CHECK(names ==
        "weight_ih_l0 (20, 3)\nweight_hh_l0 (20, 5)\nbias_ih_l0 (20)\nbias_hh_l0 (20)\n"
        "weight_ih_l0_reverse (20, 3)\nweight_hh_l0_reverse (20, 5)\n"
        "bias_ih_l0_reverse (20)\nbias_hh_l0_reverse (20)\n"
        "weight_ih_l1 (20, 10)\nweight_hh_l1 (20, 5)\nbias_ih_l1 (20)\nbias_hh_l1 (20)\n"
        "weight_ih_l1_reverse (20, 10)\nweight_hh_l1_reverse (20, 5)\n"
        "bias_ih_l1_reverse (20)\nbias_hh_l1_reverse (20)\n");
  CHECK(GRU(3, 5, {.bias = false}).parameter_count() == 15 * 3 + 15 * 5);
  CHECK_THROWS_AS(GRU(3, 5, {.dropout = 1}), ValueError);
}

TEST_CASE("recurrent: a sequence in two parts gives the same values") {
  on_each_device([] {
    LSTM lstm(3, 8, {.layers = 2});
    GRU gru(3, 8, {.layers = 2});
    const Tensor x = sequence({6, 2, 3});
    const Tensor first = slice(x, 0, 0, 4), second = slice(x, 0, 4, 6);
    const auto check_close = [](const Tensor& actual, const Tensor& expected) {
      const Values e = expected.to_vector();
      CHECK(largest_difference(actual.to_vector(), {e.begin(), e.end()}) < 1e-6);
    };

    const LSTM::Result whole = lstm.forward(x, LSTM::State{});
    const LSTM::Result parts = lstm.forward(second, lstm.forward(first, LSTM::State{}).state);
    check_close(parts.y, slice(whole.y, 0, 4, 6));
    check_close(parts.state.c, whole.state.c);

    const GRU::Result all = gru.forward(x, Tensor());
    const GRU::Result tail = gru.forward(second, gru.forward(first, Tensor()).h);
    check_close(tail.y, slice(all.y, 0, 4, 6));
    check_close(tail.h, all.h);
  });
}

TEST_CASE("recurrent: batch_first only moves axes") {
  on_each_device([] {
    const auto output = [](bool batch_first) {
      manual_seed(3);
      GRU gru(3, 5, {.batch_first = batch_first, .bidirectional = true});
      const Tensor x = sequence({4, 2, 3});
      return batch_first ? contiguous(transpose(gru(transpose(x, 0, 1)), 0, 1)).to_vector()
                         : gru(x).to_vector();
    };
    CHECK(output(true) == output(false));
  });
}

TEST_CASE("recurrent: a checkpoint segment with dropout gives the same gradients") {
  on_each_device([] {
    for (const bool half : {false, true}) {
      LSTM lstm(3, 8, {.layers = 2, .bidirectional = true, .dropout = 0.3f});
      GRU gru(16, 5, {.layers = 2, .dropout = 0.3f});
      const auto run = [&](bool segment) {
        manual_seed(5);
        const Autocast autocast(DType::f16, half);
        Tensor y = sequence({4, 2, 3});
        {
          const CheckpointScope scope(segment);
          y = gru(lstm(std::move(y)));
        }
        sum(square(cast(y, DType::f32))).backward();
        return std::pair{take_gradients(lstm), take_gradients(gru)};
      };
      const auto plain = run(false);
      CHECK(run(true) == plain);
    }
  });
}

TEST_CASE("recurrent: evaluation has no dropout, and wrong shapes are errors") {
  on_each_device([] {
    GRU gru(3, 5, {.layers = 2, .dropout = 0.5f});
    const Tensor x = sequence({4, 2, 3});
    gru.eval();
    CHECK(gru(x).to_vector() == gru(x).to_vector());
    CHECK_THROWS_AS(gru(sequence({4, 3})), ShapeError);
    CHECK_THROWS_AS(gru.forward(x, zeros({1, 2, 5})), ShapeError);
    CHECK_THROWS_AS(gru(sequence({4, 2, 2})), ShapeError);
  });
}
