// The transducer loss: the joint network in chunks, its memory, edge cases and mistakes.
// test_losses.cpp compares values with PyTorch's.
#include <cmath>

#include "ops/losses/losses.h"
#include "ops/losses/rnnt.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

struct Joint {
  Tensor encoder, predictor, weight, bias;
  Joint(int64_t samples, int64_t frames, int64_t labels, int64_t size, int64_t classes) {
    manual_seed(3);
    encoder = randn({samples, frames, size}).set_requires_grad();
    predictor = randn({samples, labels + 1, size}).set_requires_grad();
    weight = randn({classes, size}).set_requires_grad();
    bias = randn({classes}).set_requires_grad();
  }
  std::vector<Values> gradients() {
    std::vector<Values> all;
    for (Tensor* t : {&encoder, &predictor, &weight, &bias}) {
      all.push_back(t->grad().to_vector());
      t->set_grad({});
    }
    return all;
  }
};

}  // namespace

TEST_CASE("rnnt: a joint network in chunks is the whole one") {
  on_each_device([] {
    Joint j(2, 7, 3, 6, 5);
    const Tensor said = tensor(Labels{1, 2, 2, 4, 3, 1}, {2, 3});
    const Tensor frames = ints({7, 5}), labels = ints({3, 2});
    Tensor joint = tanh(unsqueeze(j.encoder, 2) + unsqueeze(j.predictor, 1));
    const Tensor whole = rnnt_loss(linear(joint, j.weight, j.bias), said, frames, labels);
    joint = {};
    whole.backward();
    const std::vector<Values> expected = j.gradients();
    for (const int64_t chunk : {0, 1, 3, 7, 100}) {
      CAPTURE(chunk);
      const Tensor loss = rnnt_joint_loss(j.encoder, j.predictor, j.weight, j.bias, said, frames,
                                          labels, {.chunk = chunk});
      CHECK(loss.item() == doctest::Approx(whole.item()).epsilon(1e-5));
      loss.backward();
      const std::vector<Values> got = j.gradients();
      for (size_t k = 0; k < got.size(); ++k)
        for (size_t i = 0; i < got[k].size(); ++i)
          CHECK(std::abs(got[k][i] - expected[k][i]) < 1e-5f + 1e-4f * std::abs(expected[k][i]));
    }
  });
}

TEST_CASE_FIXTURE(CpuDevice, "rnnt: chunks need the memory of one" * doctest::test_suite("host")) {
  const auto peak = [](int64_t chunk) {
    return plan([=] {
             Joint j(4, 64, 15, 16, 1000);
             const Tensor said = full({4, 15}, 1, DType::i32);
             rnnt_joint_loss(j.encoder, j.predictor, j.weight, j.bias, said, ints({64, 64, 64, 64}),
                             ints({15, 15, 15, 15}), {.chunk = chunk})
                 .backward();
           })
        .memory.peak;
  };
  const uint64_t logits = 4 * 64 * 16 * 1000 * sizeof(float);
  CHECK(peak(64) > 2 * logits);
  CHECK(peak(4) < logits / 3);
}

TEST_CASE("rnnt: many diagonals go in parts; f16") {
  on_each_device([] {
    const int64_t frames = 12;  // with 600 places, three parts of at most 215 diagonals
    const Tensor x = randn({1, frames, 600, 2}).set_requires_grad();
    const Tensor said = full({1, 599}, 1, DType::i32);
    const auto length = static_cast<int32_t>(frames);
    const Tensor loss = rnnt_loss(x, said, ints({length}), ints({599}));
    loss.backward();
    CHECK(std::isfinite(loss.item()));
    // Every way takes each frame's blank once, and each label once.
    const Values per_class = sum(x.grad(), {0, 1, 2}).to_vector();
    CHECK(std::abs(per_class[0] + per_class[1]) < 0.05f);
    const Tensor half = rnnt_loss(cast(x, DType::f16), said, ints({length}), ints({599}));
    CHECK(half.dtype() == DType::f32);
    CHECK(half.item() == doctest::Approx(loss.item()).epsilon(2e-3));
  });
}

TEST_CASE("rnnt: without any way the loss is infinite or counts for nothing") {
  on_each_device([] {
    const Tensor x = randn({2, 3, 3, 4}), said = tensor(Labels{1, 2, 9, 1}, {2, 2});
    const auto run = [&](bool zero, const Labels& frames) {
      Tensor copy = x.detach().set_requires_grad();
      const Tensor loss =
          rnnt_loss(copy, tensor(Labels{1, 2, 3, 1}, {2, 2}), ints(frames), ints({2, 1}),
                    {.reduction = Reduction::none, .zero_infinity = zero});
      sum(loss).backward();
      return std::pair{loss.to_vector(), copy.grad().to_vector()};
    };
    const auto [losses, gradient] = run(false, {0, 3});
    CHECK(std::isinf(losses[0]));
    CHECK(std::isfinite(losses[1]));
    const auto [zeroed, none] = run(true, {0, 3});
    CHECK(zeroed == Values{0, losses[1]});
    for (size_t i = 0; i < none.size() / 2; ++i) CHECK(none[i] == 0);
    // No way leads through a target that is not a class, or through NaN.
    const Values odd =
        rnnt_loss(x, said, ints({3, 3}), ints({2, 2}), {.reduction = Reduction::none}).to_vector();
    CHECK(std::isfinite(odd[0]));
    CHECK(std::isinf(odd[1]));
    const Tensor nan = full({2, 3, 3, 4}, NAN);
    CHECK(std::isinf(rnnt_loss(nan, said, ints({3, 3}), ints({2, 2})).item()));
  });
}

TEST_CASE_FIXTURE(CpuDevice, "rnnt: mistakes are named" * doctest::test_suite("host")) {
  const Tensor x = full({2, 4, 3, 5}, 0), said = full({2, 2}, 1, DType::i32), n = ints({2, 2});
  CHECK(contains(message_of<ShapeError>([&] {
                   rnnt_loss(full({4, 3, 5}, 0), said, n, n);
                 }),
                 "[rnnt_loss] logits must be [N, T, U + 1, C], got f32 (4, 3, 5)"));
  CHECK(contains(message_of<ShapeError>([&] {
                   rnnt_loss(x, full({2, 3}, 1, DType::i32), n, n);
                 }),
                 "targets must be [2, 2], one label less than places, got i32 (2, 3)"));
  CHECK_THROWS_AS(rnnt_loss(x, said, ints({2}), n), ShapeError);
  CHECK_THROWS_AS(rnnt_loss(x, said, n, full({2}, 1)), DTypeError);
  CHECK_THROWS_AS(rnnt_loss(x, said, n, n, {.blank = 5}), ValueError);
  CHECK_THROWS_AS(rnnt_loss(cast(x, DType::i32), said, n, n), DTypeError);
  const Tensor e = full({2, 4, 6}, 0), p = full({2, 3, 6}, 0), w = full({5, 6}, 0);
  CHECK_THROWS_AS(rnnt_joint_loss(e, full({2, 3, 7}, 0), w, {}, said, n, n), ShapeError);
  CHECK_THROWS_AS(rnnt_joint_loss(e, p, full({5, 7}, 0), {}, said, n, n), ShapeError);
  CHECK_THROWS_AS(rnnt_joint_loss(e, p, w, {}, said, n, n, {.chunk = -1}), ValueError);
  CHECK(rnnt_joint_loss(e, p, w, {}, said, ints({4, 4}), n).item() > 0);
}

}  // namespace rw::test
