// tied_cross_entropy, compared with linear and cross_entropy.
#include "core/autograd/checkpoint.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

struct Problem {
  int rows, hidden, classes;
  Tensor h, table, bias, target;

  Problem(int n, int width, int v) : rows(n), hidden(width), classes(v) {
    h = tensor(some_values(n * width, 1), {n, width}).set_requires_grad();
    table = tensor(some_values(v * width, 2), {v, width}).set_requires_grad();
    bias = tensor(some_values(v, 3), {v}).set_requires_grad();
    std::vector<int32_t> targets;
    for (int i = 0; i < n; ++i) targets.push_back(i % 5 == 3 ? -100 : i * 7 % v);
    target = tensor(targets, {n});
  }
  Tensors inputs() const { return {h, table, bias}; }
  Tensors fresh() const {
    Tensors copies;
    for (const Tensor& t : inputs()) copies.push_back(t.detach().set_requires_grad());
    return copies;
  }
};

// Returns the most memory above the bytes that were live before.
template <class F>
uint64_t peak_of(F&& body) {
  Device& device = *default_device();
  device.synchronize();
  device.reset_peak();
  const uint64_t live = device.memory_report().live;
  body();
  return device.memory_report().peak - live;
}

}  // namespace

TEST_CASE("tied_cross_entropy: equals linear and cross_entropy in any chunks") {
  on_each_device([] {
    const Problem p(37, 24, 53);
    for (const bool half : {false, true})
      for (const float smoothing : {0.0f, 0.1f})
        for (const int64_t chunk : {0, 1, 8, 37, 100}) {
          const Evaluated plain = evaluate(p.fresh(), [&](const Tensors& in) {
            const Autocast autocast(DType::f16, half);
            const Tensor logits = linear(in[0], in[1], in[2]);
            return Tensors{cross_entropy(logits, p.target, {.label_smoothing = smoothing}) *
                           100.0f};
          });
          Tensor predicted;
          const Evaluated tied = evaluate(p.fresh(), [&](const Tensors& in) {
            const Autocast autocast(DType::f16, half);
            const TiedCrossEntropyOptions o{.label_smoothing = smoothing, .chunk = chunk};
            return Tensors{tied_cross_entropy(in[0], in[1], in[2], p.target, o, &predicted) *
                           100.0f};
          });
          check_close(tied, plain, half ? 2e-3 : 1e-5,
                      fmt::format("f16 {} smoothing {} chunk {}", half, smoothing, chunk));
          const NoGrad guard;
          const Autocast autocast(DType::f16, half);
          CHECK(predicted.to_ints() == argmax(linear(p.h, p.table, p.bias)).to_ints());
          CHECK(!predicted.requires_grad());
        }
  });
}

TEST_CASE("tied_cross_entropy: one record holds neither logits nor their gradient") {
  on_each_device([] {
    const Problem p(256, 16, 1024);
    constexpr uint64_t logits = 256 * 1024 * 4, chunk = logits / 16;
    const auto step = [&](int64_t rows) {
      return peak_of([&] {
        tied_cross_entropy(p.h, p.table, p.bias, p.target, {.chunk = rows}).backward();
        for (Tensor t : p.inputs()) t.set_grad({});
      });
    };
    // In addition to the gradients: a chunk, the packed operands of a matrix product, and small
    // tensors.
    const uint64_t gradients = p.h.bytes() + p.table.bytes() + p.bias.bytes();
    CHECK(step(16) < gradients + 3 * chunk + (192 << 10));
    CHECK(step(256) > logits);
  });
}

TEST_CASE("tied_cross_entropy: a checkpoint segment gives the same bits") {
  on_each_device([] {
    const Problem p(20, 8, 30);
    const auto run = [&](bool segment) {
      return evaluate(p.fresh(), [&](const Tensors& in) {
        const CheckpointScope scope(segment);
        return Tensors{tied_cross_entropy(in[0] * 1.5f, in[1], in[2], p.target, {.chunk = 7})};
      });
    };
    check_equal(run(true), run(false), "segment");
  });
}

TEST_CASE("tied_cross_entropy: all targets ignored is 0, a wrong one is not a number") {
  on_each_device([] {
    const Problem p(6, 8, 10);
    const Tensor ignored = tensor(std::vector<int32_t>(6, -100), {6});
    CHECK(tied_cross_entropy(p.h, p.table, p.bias, ignored).item() == 0);
    const Tensor wrong = tensor(std::vector<int32_t>{0, 1, 2, 3, 4, 10}, {6});
    CHECK(std::isnan(tied_cross_entropy(p.h, p.table, p.bias, wrong).item()));
    CHECK_THROWS_AS(tied_cross_entropy(p.h, p.table, p.h, p.target), ShapeError);
    CHECK_THROWS_AS(tied_cross_entropy(p.h, p.bias, p.bias, p.target), ShapeError);
    CHECK_THROWS_AS(tied_cross_entropy(cast(p.h, DType::f16), p.table, p.bias, p.target),
                    DTypeError);
    Tape::current()->clear();
  });
}

}  // namespace rw::test
