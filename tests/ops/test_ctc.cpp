// The CTC loss, compared with sums over all ways; edge cases and mistakes; its decoders.
#include <cmath>
#include <functional>
#include <map>

#include "nn/speech/ctc_decode.h"
#include "ops/losses/ctc.h"
#include "ops/losses/losses.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

Labels collapse_labels(const Labels& way, int32_t blank) {
  Labels labels;
  for (size_t i = 0; i < way.size(); ++i)
    if (way[i] != blank && (i == 0 || way[i] != way[i - 1])) labels.push_back(way[i]);
  return labels;
}

// Returns the probabilities of all label sequences of one sample, from every way through its
// frames.
std::map<Labels, double> all_sequences(const Tensor& log_probs, int64_t sample, int64_t frames,
                                       int32_t blank) {
  const Values x = log_probs.to_vector();
  const int64_t samples = log_probs.size(1), classes = log_probs.size(2);
  std::map<Labels, double> total;
  Labels way(static_cast<size_t>(frames));
  std::function<void(int64_t, double)> go = [&](int64_t t, double p) {
    if (t == frames) {
      total[collapse_labels(way, blank)] += p;
      return;
    }
    for (int32_t c = 0; c < classes; ++c) {
      way[static_cast<size_t>(t)] = c;
      go(t + 1, p * std::exp(x[static_cast<size_t>((t * samples + sample) * classes + c)]));
    }
  };
  go(0, 1);
  return total;
}

}  // namespace

TEST_CASE("ctc: the loss is the sum over all ways") {
  on_each_device([] {
    manual_seed(5);
    const Tensor x = log_softmax(randn({5, 2, 3}, 0, 2), 2);
    for (const int32_t blank : {0, 2})
      for (const auto& [labels, p] : all_sequences(x, 1, 5, blank)) {
        if (labels.empty()) continue;
        const auto n = static_cast<int32_t>(labels.size());
        Labels both = labels;
        both.insert(both.end(), labels.begin(), labels.end());
        const Tensor loss = ctc_loss(x, tensor(both, {2, n}), ints({0, 5}), ints({n, n}),
                                     {.blank = blank, .reduction = Reduction::none});
        const Values values = loss.to_vector();
        CHECK(std::isinf(values[0]));  // no frames
        CHECK(values[1] == doctest::Approx(-std::log(p)).epsilon(1e-4));
      }
  });
}

TEST_CASE("ctc: a distribution's gradients add up, with frames and labels to spare") {
  on_each_device([] {
    const Tensor logits = randn({40, 3, 6}).set_requires_grad();
    const Tensor x = log_softmax(logits, 2);
    x.retain_grad();
    const Tensor said = tensor(Labels{1, 1, 2, 5, 3, 4, 4, 4, 0, 0, 0, 0}, {3, 4});
    const Tensor loss =
        ctc_loss(x, said, ints({40, 99, 17}), ints({4, 4, -3}), {.reduction = Reduction::sum});
    loss.backward();
    // In each frame, a sample passes some state, so posteriors add up to 1.
    const Values per_frame = sum(x.grad(), {2}).to_vector();
    for (int64_t t = 0; t < 40; ++t)
      for (int64_t n = 0; n < 3; ++n)
        CHECK(per_frame[static_cast<size_t>(t * 3 + n)] ==
              doctest::Approx(n == 2 && t >= 17 ? 0 : -1).epsilon(1e-3));
  });
}

// The recursion of Graves et al. 2006 as published, in Real: the gradient of one sample's loss by
// log_probs.
template <class Real>
std::vector<double> plain_gradient(const Values& x, int64_t frames, int64_t classes,
                                   const Labels& labels) {
  const auto count = static_cast<int64_t>(2 * labels.size() + 1);
  const auto class_of = [&](int64_t s) -> int64_t {
    return s % 2 == 0 ? 0 : labels[static_cast<size_t>(s / 2)];
  };
  const auto add = [](Real a, Real b) {
    const Real top = std::max(a, b);
    return std::isinf(top) ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
  };
  const auto skips = [&](int64_t s) {
    return s >= 2 && s % 2 == 1 && class_of(s) != class_of(s - 2);
  };
  const auto at = [&](int64_t t, int64_t s) { return static_cast<size_t>(t * count + s); };
  const auto own = [&](int64_t t, int64_t s) -> Real {
    return x[static_cast<size_t>(t * classes + class_of(s))];
  };
  std::vector<Real> alpha(at(frames, 0), -INFINITY), beta = alpha;
  for (int64_t t = 0; t < frames; ++t)
    for (int64_t s = 0; s < count; ++s) {
      Real way = t == 0 ? (s < 2 ? 0 : -INFINITY) : alpha[at(t - 1, s)];
      if (t > 0 && s > 0) way = add(way, alpha[at(t - 1, s - 1)]);
      if (t > 0 && skips(s)) way = add(way, alpha[at(t - 1, s - 2)]);
      alpha[at(t, s)] = way + own(t, s);
    }
  for (int64_t t = frames; t-- > 0;)
    for (int64_t s = count; s-- > 0;) {
      const auto next = [&](int64_t to) { return beta[at(t + 1, to)] + own(t + 1, to); };
      Real way = s + 2 >= count ? 0 : -INFINITY;
      if (t + 1 < frames) {
        way = next(s);
        if (s + 1 < count) way = add(way, next(s + 1));
        if (s + 2 < count && skips(s + 2)) way = add(way, next(s + 2));
      }
      beta[at(t, s)] = way;
    }
  const Real total = add(alpha[at(frames - 1, count - 1)], alpha[at(frames - 1, count - 2)]);
  std::vector<double> gradient(static_cast<size_t>(frames * classes));
  for (int64_t t = 0; t < frames; ++t)
    for (int64_t s = 0; s < count; ++s)
      gradient[static_cast<size_t>(t * classes + class_of(s))] -=
          std::exp(double{alpha[at(t, s)]} + beta[at(t, s)] - total);
  return gradient;
}

TEST_CASE("ctc: the gradient is nearer to f64 than a recursion in f32 comes") {
  on_each_device([] {
    manual_seed(11);
    // The last one has 402 states, so its frames go in two parts.
    const std::pair<int64_t, int> sizes[] = {{50, 12}, {120, 30}, {300, 40}, {450, 200}};
    for (const auto& [frames, labels] : sizes) {
      CAPTURE(frames);
      Labels said;
      for (int i = 0; i < labels; ++i) said.push_back(1 + i * i % 27);
      const Tensor x = log_softmax(randn({frames, 1, 28}, 0, 2), 2).detach().set_requires_grad();
      sum(ctc_loss(x, tensor(said, {1, labels}), ints({static_cast<int32_t>(frames)}),
                   ints({labels}), {.reduction = Reduction::none}))
          .backward();
      const Values gradient = x.grad().to_vector();
      const std::vector<double> exact = plain_gradient<double>(x.to_vector(), frames, 28, said);
      const std::vector<double> in_f32 = plain_gradient<float>(x.to_vector(), frames, 28, said);
      double error = 0, error_in_f32 = 0;  // the largest gradients are 1
      for (size_t i = 0; i < exact.size(); ++i) {
        error = std::max(error, std::abs(gradient[i] - exact[i]));
        error_in_f32 = std::max(error_in_f32, std::abs(in_f32[i] - exact[i]));
      }
      CHECK(error <= error_in_f32 / 3);
    }
  });
}

TEST_CASE("ctc: f16 inputs are f32 inside") {
  on_each_device([] {
    Labels said;
    for (int i = 0; i < 20; ++i) said.push_back(1 + i * 7 % 5);
    const Tensor x = log_softmax(randn({60, 1, 6}), 2);
    const auto loss_in = [&](DType dtype) {
      return ctc_loss(cast(x, dtype), tensor(said, {1, 20}), ints({60}), ints({20}),
                      {.reduction = Reduction::none});
    };
    CHECK(loss_in(DType::f16).dtype() == DType::f32);
    CHECK(loss_in(DType::f16).item() == doctest::Approx(loss_in(DType::f32).item()).epsilon(2e-3));
  });
}

TEST_CASE("ctc: without any way the loss is infinite or counts for nothing") {
  on_each_device([] {
    const Tensor x = log_softmax(randn({3, 2, 4}), 2).detach().set_requires_grad();
    const Tensor said = tensor(Labels{1, 1, 2, 1, 2, 3}, {2, 3});
    const auto run = [&](bool zero) {
      Tensor copy = x.detach().set_requires_grad();
      const Tensor loss = ctc_loss(copy, said, ints({3, 3}), ints({3, 3}),
                                   {.reduction = Reduction::none, .zero_infinity = zero});
      sum(loss).backward();
      return std::pair{loss.to_vector(), select(copy.grad(), 1, 0).to_vector()};
    };
    const auto [losses, gradient] = run(false);
    CHECK(std::isinf(losses[0]));
    CHECK(std::isfinite(losses[1]));
    CHECK(std::isnan(gradient[1]));
    const auto [zeroed, none] = run(true);
    CHECK(zeroed[0] == 0);
    CHECK(zeroed[1] == losses[1]);
    CHECK(none == Values(12, 0));
    // A label that is no class is never output; -infinity is a probability of 0.
    const Tensor odd = tensor(Labels{9, 1}, {2, 1});
    const Values v =
        ctc_loss(x.detach(), odd, ints({3, 3}), ints({1, 1}), {.reduction = Reduction::none})
            .to_vector();
    CHECK(std::isinf(v[0]));
    CHECK(std::isfinite(v[1]));
    CHECK(std::isinf(ctc_loss(full({3, 2, 4}, NAN), odd, ints({3, 3}), ints({1, 1})).item()));
    // Without frames, no way outputs a label, and one outputs nothing; the gradient of frames
    // beyond is 0.
    const Tensor unused = x.detach().set_requires_grad();
    const Tensor silent =
        ctc_loss(unused, said, ints({0, 0}), ints({0, 2}), {.reduction = Reduction::none});
    CHECK(silent.to_vector() == Values{0, INFINITY});
    sum(silent).backward();
    CHECK(unused.grad().to_vector() == Values(24, 0));
    const Tensor sure = tensor({0, -INFINITY, -INFINITY, 0}, {2, 1, 2}).set_requires_grad();
    const Tensor loss = ctc_loss(sure, tensor(Labels{1}, {1, 1}), ints({2}), ints({1}));
    CHECK(loss.item() == 0);
    loss.backward();
    CHECK(sure.grad().to_vector() == Values{-1, 0, 0, -1});
  });
}

TEST_CASE_FIXTURE(CpuDevice, "ctc: mistakes are named" * doctest::test_suite("host")) {
  const Tensor x = full({4, 2, 3}, -1), said = tensor(Labels{1, 2}, {2, 1}), n = ints({1, 1});
  CHECK(contains(message_of<ValueError>([] {
                   ctc_targets({{1, 2}, {2, 7}}, 5);
                 }),
                 "[ctc_targets] labels must be classes 0 to 4 but the blank 0, got 7 at place 1 of "
                 "sample 1"));
  CHECK_THROWS_AS(ctc_targets({{1, 0}}, 5), ValueError);
  CHECK(contains(message_of<ValueError>([] {
                   ctc_targets({{1}, {2, 2, 1}}, 5, 0, {1, 3});
                 }),
                 "3 labels of sample 1 need 4 frames, got 3"));
  CHECK_THROWS_AS(ctc_targets({{1}}, 5, 0, {1, 3}), ValueError);
  CHECK_THROWS_AS(ctc_loss(full({4, 3}, 0), said, n, n), ShapeError);
  CHECK_THROWS_AS(ctc_loss(x, ints({1, 2}), n, n), ShapeError);
  CHECK_THROWS_AS(ctc_loss(x, said, ints({1}), n), ShapeError);
  CHECK_THROWS_AS(ctc_loss(x, said, n, full({2}, 1)), DTypeError);
  CHECK_THROWS_AS(ctc_loss(x, said, n, n, {.blank = 3}), ValueError);
  CHECK_THROWS_AS(ctc_loss(x, full({2, 1024}, 1, DType::i32), n, n), ShapeError);
  const CtcTargets t = ctc_targets({{1, 2, 2}, {}, {2}}, 3);
  CHECK(t.labels.to_ints() == Labels{1, 2, 2, 0, 0, 0, 2, 0, 0});
  CHECK(t.lengths.to_ints() == Labels{3, 0, 1});
}

TEST_CASE_FIXTURE(CpuDevice, "ctc: decoders" * doctest::test_suite("host")) {
  manual_seed(9);
  const Tensor x = log_softmax(randn({6, 3, 3}, 0, 1.5f), 2);
  const std::vector<int64_t> lengths = {6, 4, 0};
  const auto beam = ctc_beam_decode(x, lengths, {.beam = 2000, .best = 5, .least = -1e30f});
  const auto greedy = ctc_greedy_decode(x, lengths);
  for (size_t n = 0; n < 3; ++n) {
    const auto all = all_sequences(x, static_cast<int64_t>(n), lengths[n], 0);
    REQUIRE(!beam[n].empty());
    double before = 1;
    for (const CtcHypothesis& h : beam[n]) {  // a beam that holds everything is exact
      CHECK(std::exp(h.log_probability) == doctest::Approx(all.at(h.labels)).epsilon(1e-4));
      CHECK(std::exp(h.log_probability) <= before * 1.0001);
      before = std::exp(h.log_probability);
    }
    for (const auto& [labels, p] : all) CHECK(p <= std::exp(beam[n][0].log_probability) * 1.0001);
    CHECK(all.contains(greedy[n].labels));
    CHECK(greedy[n].log_probability <= beam[n][0].log_probability + 1e-5f);
  }
  CHECK(greedy[2].labels.empty());
  // The likeliest way is 0 0 (no label), but "1" has more ways.
  const Tensor close = log(tensor({0.6f, 0.4f, 0.6f, 0.4f}, {2, 1, 2}));
  CHECK(ctc_greedy_decode(close)[0].labels.empty());
  CHECK(ctc_beam_decode(close)[0][0].labels == Labels{1});
  CHECK(ctc_beam_decode(close, {}, {.beam = 2, .best = 2})[0].size() == 2);
  CHECK_THROWS_AS(ctc_greedy_decode(close, {}, 2), ValueError);
  CHECK_THROWS_AS(ctc_greedy_decode(close, std::vector<int64_t>{3}), ValueError);
  CHECK_THROWS_AS(ctc_beam_decode(close, {}, {.beam = 0}), ValueError);

  CHECK(edit_distance(Labels{1, 2, 3}, Labels{1, 3}) == 1);
  CHECK(edit_distance(Labels{}, Labels{1, 3}) == 2);
  CHECK(edit_distance(Labels{4, 2}, Labels{1, 2, 3}) == 2);
}

}  // namespace rw::test
