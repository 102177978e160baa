// Losses and their gradients, compared with PyTorch's numbers; extremes; mistakes.
#include <cmath>
#include <functional>

#include "ops/losses/ctc.h"
#include "ops/losses/losses.h"
#include "ops/losses/rnnt.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/op_table/gradcheck.h"

using namespace rw;
using namespace rw::test;

namespace {

namespace loss_goldens {
#include "tests/goldens/losses.inc"
}

// Returns values() of make_loss_goldens.py.
Tensor loss_values(const Shape& shape, int seed, double low, double high, double scale = 1) {
  Values v;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const double place = static_cast<double>((i * 37 + seed * 53) % 101) / 101;
    v.push_back(static_cast<float>(scale * (low + (high - low) * place)));
  }
  return tensor(v, shape);
}

// Returns the CTC loss of logits [7, 3, 5].
Tensor ctc(const Tensor& x, const std::vector<int32_t>& frames, const std::vector<int32_t>& labels,
           const CtcOptions& options) {
  const std::vector<int32_t> said = {1, 1, 2, 4, 2, 0, 3, 0, 0};
  return ctc_loss(log_softmax(x, 2), tensor(said, {3, 3}), tensor(frames, {3}), tensor(labels, {3}),
                  options);
}

// Returns the transducer loss of logits [2, 4, 3, 5].
Tensor rnnt(const Tensor& x, const std::vector<int32_t>& frames, const std::vector<int32_t>& labels,
            const RnntOptions& options) {
  const std::vector<int32_t> said = {1, 1, 4, 2};
  return rnnt_loss(x, tensor(said, {2, 2}), tensor(frames, {2}), tensor(labels, {2}), options);
}

struct LossCase {
  std::string name;
  std::function<Tensor()> input;
  std::function<Tensor(const Tensor&)> loss;
  const std::vector<double>&losses, &gradient;
};

std::vector<LossCase> loss_cases() {
  const Shape s = {4, 5};
  const Tensor y = loss_values(s, 2, -3, 3), z = loss_values(s, 3, -3, 3),
               pt = loss_values(s, 5, 0, 1);
  const Tensor weight = loss_values({5}, 6, 0.5, 2), sign = tensor({1, -1, 1, -1}, {4});
  const Tensor soft = pt / sum(pt, {1}, true), y0 = select(y, 1, 0);
  const std::vector<int32_t> classes = {3, 0, 2, 4}, others = {3, 2, 0, 2};
  const Tensor index = tensor(classes, {4}), ignoring = tensor(others, {4});
  const auto x = [=] { return loss_values(s, 1, -3, 3); };
  const auto large = [=] { return loss_values(s, 1, -3, 3, 100); };
  const auto first = [=] { return contiguous(select(loss_values(s, 1, -3, 3), 1, 0)); };
  const auto speech = [=] { return loss_values({7, 3, 5}, 7, -3, 3); };
  const auto lattice = [=] { return loss_values({2, 4, 3, 5}, 8, -3, 3); };
  const auto share = [=] { return loss_values(s, 4, 0.05, 0.95); };
  using T = const Tensor&;
#define CASE(name, input, body)                                                                   \
  LossCase {                                                                                      \
#name, input, [=](T a) { return body; }, loss_goldens::name##_loss, loss_goldens::name##_grad \
  }
  return {
      CASE(mse, x, mse_loss(a, y, Reduction::none)),
      CASE(l1, x, l1_loss(a, y)),
      CASE(smooth_l1, x, smooth_l1_loss(a, y, Reduction::mean, 0.7f)),
      CASE(huber, x, huber_loss(a, y, Reduction::sum, 0.7f)),
      CASE(bce, share, binary_cross_entropy(a, pt, weight)),
      CASE(bce_logits, x,
           binary_cross_entropy_with_logits(a, pt, {.weight = weight, .pos_weight = weight})),
      CASE(bce_extreme, large, binary_cross_entropy_with_logits(a, pt)),
      CASE(kl, x, kl_div(a, pt, {.batchmean = true})),
      CASE(kl_log, x, kl_div(a, y, {.log_target = true})),
      CASE(focal, x, sigmoid_focal_loss(a, pt)),
      CASE(focal_plain, x, sigmoid_focal_loss(a, pt, {.alpha = -1, .gamma = 1.5f})),
      CASE(ranking, first, margin_ranking_loss(a, y0, sign, 0.5f)),
      CASE(cosine, x, cosine_embedding_loss(a, y, sign, -0.6f)),
      CASE(triplet, x, triplet_margin_loss(a, y, z, {.margin = 3})),
      CASE(triplet_swap, x, triplet_margin_loss(a, y, z, {.margin = 3, .p = 3, .swap = true})),
      CASE(multi_margin, x, multi_margin_loss(a, index, {.margin = 0.8f})),
      CASE(multi_margin_weight, x, multi_margin_loss(a, index, {.p = 2, .weight = weight})),
      CASE(nll, x, nll_loss(a, ignoring, {}, 2)),
      CASE(nll_weight, x, nll_loss(a, ignoring, weight, 2)),
      CASE(ce, x, cross_entropy(a, index)),
      CASE(ce_ignoring, x, cross_entropy(a, ignoring, CrossEntropyOptions{.ignore_index = 2})),
      CASE(ce_ignoring_sum, x,
           cross_entropy(a, ignoring,
                         CrossEntropyOptions{.ignore_index = 2, .reduction = Reduction::sum})),
      CASE(ce_label_smoothing, x,
           cross_entropy(a, index, CrossEntropyOptions{.label_smoothing = 0.2f})),
      CASE(ce_label_smoothing_ignoring, x,
           cross_entropy(a, ignoring,
                         CrossEntropyOptions{.label_smoothing = 0.2f, .ignore_index = 2})),
      CASE(ce_label_smoothing_none, x,
           cross_entropy(
               a, ignoring,
               CrossEntropyOptions{
                   .label_smoothing = 0.2f, .ignore_index = 2, .reduction = Reduction::none})),
      CASE(ce_tied, x,
           tied_cross_entropy(a, loss_values({7, 5}, 9, -2, 2), loss_values({7}, 10, -2, 2),
                              ignoring, {.label_smoothing = 0.1f, .ignore_index = 2})),
      CASE(ce_weight, x, cross_entropy(a, ignoring, weight, {.ignore_index = 2})),
      CASE(ce_smooth, x,
           cross_entropy(a, ignoring, weight, {.label_smoothing = 0.2f, .ignore_index = 2})),
      CASE(ce_soft, x, cross_entropy(a, soft)),
      CASE(ce_soft_all, x, cross_entropy(a, soft, weight, {.label_smoothing = 0.2f})),
      CASE(ctc, speech, ctc(a, {7, 5, 6}, {3, 2, 1}, {})),
      CASE(ctc_sum, speech, ctc(a, {4, 2, 7}, {3, 2, 0}, {.reduction = Reduction::sum})),
      CASE(ctc_none, speech, ctc(a, {7, 7, 1}, {2, 1, 1}, {.reduction = Reduction::none})),
      CASE(ctc_blank, speech, ctc(a, {7, 6, 4}, {3, 3, 0}, {.blank = 3})),
      CASE(ctc_impossible, speech, ctc(a, {3, 1, 5}, {3, 2, 1}, {.zero_infinity = true})),
      CASE(rnnt, lattice, rnnt(a, {4, 3}, {2, 1}, {.reduction = Reduction::none})),
      CASE(rnnt_mean, lattice, rnnt(a, {1, 4}, {0, 2}, {.blank = 3})),
      CASE(ce_soft_none, x, cross_entropy(a, soft, weight, {.reduction = Reduction::none})),
  };
#undef CASE
}

}  // namespace

TEST_CASE("losses: PyTorch's values and gradients") {
  on_each_device([] {
    for (const LossCase& c : loss_cases()) {
      CAPTURE(c.name);
      Tensor a = c.input();
      a.set_requires_grad();
      const Tensor loss = c.loss(a);
      CHECK(loss.dtype() == DType::f32);
      CHECK(largest_error(loss.to_vector(), c.losses) < 2e-6);
      sum(loss).backward();
      CHECK(largest_error(a.grad().to_vector(), c.gradient) < 1e-5);
    }
  });
}

TEST_CASE("losses: f16 inputs give f32 losses and f16 gradients flow on") {
  on_each_device([] {
    const Tensor x = cast(loss_values({4, 5}, 1, -3, 3), DType::f16);
    const Tensor y = cast(loss_values({4, 5}, 5, 0, 1), DType::f16);
    CHECK(mse_loss(x, y).dtype() == DType::f32);
    CHECK(binary_cross_entropy_with_logits(x, y).dtype() == DType::f32);
    CHECK(cross_entropy(x, y).dtype() == DType::f32);
    CHECK(nll_loss(x, cast(zeros({4}), DType::i32)).dtype() == DType::f32);
    // A mean whose sum overflows in f16: 300 * 300 does.
    CHECK(mse_loss(cast(ones({64}) * 300.0f, DType::f16), zeros({64}, DType::f16)).item() == 90000);
  });
}

TEST_CASE("losses: extremes stay finite, and nothing counts for nothing") {
  on_each_device([] {
    Tensor x = tensor({-200, 200, 0}, {3});
    x.set_requires_grad();
    const Tensor t = tensor({1, 0, 0.5f}, {3});
    const Tensor loss = binary_cross_entropy_with_logits(x, t, {.reduction = Reduction::none});
    CHECK(largest_difference(loss.to_vector(), {200, 200, std::log(2.0)}) < 1e-4);
    sum(loss).backward();
    CHECK(largest_difference(x.grad().to_vector(), {-1, 1, 0}) < 1e-6);
    // Logarithms are at least -100.
    const Tensor certain = binary_cross_entropy(tensor({0, 1}, {2}), tensor({1, 0}, {2}));
    CHECK(certain.item() == doctest::Approx(100));
    CHECK(kl_div(tensor({-1, -infinity}, {2}), tensor({1, 0}, {2})).item() == doctest::Approx(0.5));
    // A class is impossible, but is not the target.
    const Tensor logits = tensor({1, -infinity, 2}, {1, 3}),
                 wanted = tensor({0.5f, 0, 0.5f}, {1, 3});
    CHECK(cross_entropy(logits, wanted).item() ==
          doctest::Approx(std::log(std::exp(1.0) + std::exp(2.0)) - 1.5));
    const std::vector<int32_t> ignored = {2, 2};
    const Tensor none = tensor(ignored, {2}), weight = ones({3});
    CHECK(nll_loss(ones({2, 3}), none, weight, 2).item() == 0);
    CHECK(nll_loss(ones({2, 3}), none, {}, 2).item() == 0);
    CHECK(cross_entropy(ones({2, 3}), none, weight, {.ignore_index = 2}).item() == 0);
    const std::vector<int32_t> outside = {7, 1};
    CHECK(std::isnan(nll_loss(ones({2, 3}), tensor(outside, {2}), weight).item()));
    CHECK(std::isnan(cross_entropy(ones({2, 3}), tensor(outside, {2}), weight).item()));
  });
}

TEST_CASE("losses: a composed mean keeps its inputs and nothing else") {
  on_each_device([] {
    Tensor x = loss_values({64, 1024}, 1, -1, 1);
    x.set_requires_grad();
    const Tensor y = loss_values({64, 1024}, 2, -1, 1);
    const uint64_t before = default_device()->memory_report().live;
    const Tensor loss = smooth_l1_loss(x, y);
    CHECK(default_device()->memory_report().live - before < 4096);
  });
}

TEST_CASE("softmax: along the axis that is asked for" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const Tensor x = tensor({0, 5, 0, 1, 5, 2}, {2, 3});
  for (const int axis : {0, -2}) {
    const Values y = softmax(x, axis).to_vector(), log = log_softmax(x, axis).to_vector();
    const double first_row[] = {1 / (1 + std::exp(1.0)), 0.5, 1 / (1 + std::exp(2.0))};
    for (size_t i = 0; i < 3; ++i) {
      CHECK(y[i] == doctest::Approx(first_row[i]));
      CHECK(y[i] + y[i + 3] == doctest::Approx(1));
      CHECK(std::exp(log[i]) == doctest::Approx(y[i]));
    }
  }
}

TEST_CASE("losses: mistakes are typed errors" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const Tensor x = ones({4, 5}), index = cast(zeros({4}), DType::i32), w = ones({5});
  CHECK_THROWS_AS(mse_loss(x, ones({3, 5})), ShapeError);
  CHECK_THROWS_AS(l1_loss(x, index), DTypeError);
  CHECK(message_of<ValueError>([&] { huber_loss(x, x, Reduction::mean, 0); }) ==
        "[huber_loss] delta must be positive, got 0");
  CHECK_THROWS_AS(smooth_l1_loss(x, x, Reduction::mean, -1), ValueError);
  CHECK_THROWS_AS(binary_cross_entropy(x, x, ones({2, 4, 5})), ShapeError);
  CHECK_THROWS_AS(binary_cross_entropy(x, x, ones({5}).set_requires_grad()), AutogradError);
  CHECK_THROWS_AS(binary_cross_entropy_with_logits(x, x, {.pos_weight = ones({3})}), ShapeError);
  CHECK_THROWS_AS(sigmoid_focal_loss(x, x, {.gamma = -1}), ValueError);
  CHECK_THROWS_AS(kl_div(ones({}), ones({}), {.batchmean = true}), ShapeError);
  CHECK_THROWS_AS(cosine_embedding_loss(x, x, ones({5})), ShapeError);
  CHECK_THROWS_AS(triplet_margin_loss(x, x, x, {.p = 0.5f}), ValueError);
  CHECK_THROWS_AS(multi_margin_loss(x, index, {.p = 3}), ValueError);
  CHECK_THROWS_AS(nll_loss(x, ones({4})), DTypeError);
  CHECK_THROWS_AS(nll_loss(x, cast(zeros({3}), DType::i32)), ShapeError);
  CHECK_THROWS_AS(nll_loss(x, index, ones({4})), ShapeError);
  CHECK_THROWS_AS(cross_entropy(x, ones({4})), ShapeError);
  CHECK_THROWS_AS(cross_entropy(x, ones({4, 5}).set_requires_grad()), AutogradError);
  CHECK_THROWS_AS(cross_entropy(x, index, ones({4})), ShapeError);
}
