// AdamA: gradients of micro-batches go into the moments, one at a time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/adama.h"
#include "optim/adam.h"
#include "optim/schedules/schedule.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/optim/pairs/covering_array.h"
#include "tests/optim/pairs/plain_updates.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int adama_size = 21;

// Returns the gradient of micro-batch i of window t.
Values window_gradient(int t, int i) {
  return some_values(adama_size, 7 * t + i);
}

// The rule in f64 (Zhang et al. 2023), with decoupled decay.
struct AdamAModel {
  AdamAOptions o;
  std::vector<double> w, m = std::vector<double>(adama_size), v = m;
  double t = 0;

  explicit AdamAModel(const AdamAOptions& options) : o(options) {
    for (const float x : some_values(adama_size, 50)) w.push_back(x);
  }
  void window(int index, int n, const std::vector<double>& weights) {
    for (size_t k = 0; k < w.size(); ++k) {
      m[k] *= double{o.beta1};
      v[k] *= double{o.beta2};
      for (int i = 0; i < n; ++i) {
        const double g = weights[size_t(i)] * window_gradient(index, i)[k] / n;
        m[k] += (1 - double{o.beta1}) * g;
        v[k] += (1 - double{o.beta2}) * g * g;
      }
    }
    ++t;
    const double c1 = 1 - std::pow(double{o.beta1}, t), c2 = 1 - std::pow(double{o.beta2}, t);
    for (size_t k = 0; k < w.size(); ++k) {
      w[k] *= 1 - double{o.lr} * o.weight_decay;
      w[k] -= o.lr / c1 * m[k] / (std::sqrt(v[k] / c2) + o.eps);
    }
  }
};

// A run of two parameters with a row of options, beside the rule in f64.
class AdamAPair {
 public:
  static std::vector<size_t> levels() { return {3, 2, 2, 4, 4, 2, 2, 2, 2, 2, 2, 3}; }

  explicit AdamAPair(Levels l) {
    n_ = l.pick({1u, 2u, 3u});
    is_short_ = l.pick({false, true});
    is_weighted_ = l.pick({false, true});
    LossScaler patient = LossScaler::dynamic(64, 4, 0.25f, 2);
    patient.hysteresis = 2, patient.keep_bad = true;
    scale_.o = l.pick(
        {LossScaler::none(), LossScaler::fixed(8), LossScaler::dynamic(64, 2, 0.5f, 2), patient});
    scale_.scale = scale_.o.initial;
    voids_ = l.pick<std::vector<uint32_t>>({{}, {0}, {n_ - 1}, {0, 1, 2}});
    std::tie(o_.beta1, o_.beta2) = l.pick<std::pair<float, float>>({{0.9f, 0.999f}, {0.5f, 0.9f}});
    o_.eps = l.pick({1e-8f, 1e-3f});
    o_.weight_decay = l.pick({0.0f, 0.02f});
    o_.lr = 0.05f;
    schedule_ = l.pick({Schedule::constant(), Schedule::linear(10, 3, 0.25f)});
    has_groups_ = l.pick({false, true});
    misses_ = l.pick({false, true});
    size_ = l.pick({1.0f, 1e-3f, 1e18f});
  }

  void run() {
    std::vector<ParameterGroup> groups = {{.parameters = {w_[0]}}};
    if (has_groups_)
      groups.push_back({.parameters = {w_[1]}, .lr_scale = 0.5f, .weight_decay = 0.01f});
    else
      groups[0].parameters.push_back(w_[1]);
    AdamA optimizer(groups, n_, o_);
    optimizer.set_scaler(scale_.o);
    optimizer.set_schedule(schedule_);
    for (int window = 0; window < windows; ++window) {
      CAPTURE(window);
      run_window(optimizer, window);
      CHECK(optimizer.loss_scale() == scale_.scale);
      CHECK(optimizer.updates() == static_cast<uint64_t>(updates_));
      CHECK(optimizer.skipped() == skipped_);
      for (size_t i = 0; i < 2; ++i) {
        const Values x = w_[i].to_vector();
        CHECK(largest_difference(x, x_[i]) < 1e-4);
      }
    }
  }

 private:
  static constexpr int windows = 8;

  // Every other window has overflows.
  void run_window(AdamA& optimizer, int window) {
    const uint32_t count = is_short_ && window + 1 == windows ? n_ - 1 : n_;
    std::array<Doubles, 2> sum = {Doubles(adama_size), Doubles(adama_size)}, squares = sum;
    for (uint32_t k = 0; k < count; ++k) {
      const bool is_void = window % 2 == 1 && std::ranges::find(voids_, k) != voids_.end();
      const float weight = is_weighted_ ? std::array{1.0f, 1.5f, 0.5f}[k] : 1;
      Tensor loss;
      double norm = 0;
      for (size_t i = 0; i < 2; ++i) {
        if (!has_gradient(i, window)) continue;
        Values g = window_gradient(window, static_cast<int>(2 * k + i));
        for (size_t j = 0; j < g.size(); ++j) {
          g[j] *= size_;
          const double share = is_void ? 0 : double{weight} * g[j] / n_;
          sum[i][j] += share, squares[i][j] += share * share, norm += share * share;
        }
        if (is_void) g[3] = infinity;
        const Tensor part = loss_with(w_[i], g);
        loss = loss ? loss + part : part;
      }
      optimizer.backward(loss, weight);
      optimizer.step();
      if (!is_void) CHECK(optimizer.grad_norm() == doctest::Approx(std::sqrt(norm)).epsilon(1e-4));
      scale_.note(is_void);
      skipped_ += is_void;
    }
    CHECK(optimizer.flush() == (count > 0 && count < n_));
    if (count > 0) update(sum, squares, window);
  }

  void update(const std::array<Doubles, 2>& sum, const std::array<Doubles, 2>& squares,
              int window) {
    const double factor = schedule_.kind == Schedule::Kind::constant ? 1
                          : updates_ < 3                             ? (updates_ + 1) / 3.0
                                         : 1 - 0.75 * std::min(1.0, (updates_ - 3) / 7.0);
    ++updates_;
    for (size_t i = 0; i < 2; ++i) {
      if (!has_gradient(i, window)) continue;
      const bool is_other = has_groups_ && i == 1;
      const double lr = factor * o_.lr * (is_other ? 0.5 : 1), t = ++own_[i];
      const double decay = is_other ? 0.01f : o_.weight_decay;
      const double c1 = 1 - std::pow(double{o_.beta1}, t), c2 = 1 - std::pow(double{o_.beta2}, t);
      for (size_t j = 0; j < adama_size; ++j) {
        double &m = m_[i][j], &v = v_[i][j];
        m = double{o_.beta1} * m + (1 - double{o_.beta1}) * sum[i][j];
        v = double{o_.beta2} * v + (1 - double{o_.beta2}) * squares[i][j];
        x_[i][j] -= lr * (decay * x_[i][j] + m / c1 / (std::sqrt(v / c2) + o_.eps));
      }
    }
  }

  bool has_gradient(size_t i, int window) const { return i == 0 || !misses_ || window % 3 != 0; }

  AdamAOptions o_;
  uint32_t n_;
  bool is_short_, is_weighted_, has_groups_, misses_;
  PlainScale scale_;
  std::vector<uint32_t> voids_;
  Schedule schedule_;
  float size_;  // of gradients
  const Values start_ = some_values(adama_size, 50);
  const std::array<Tensor, 2> w_ = {parameter(start_), parameter(start_)};
  std::array<Doubles, 2> x_ = {Doubles(start_.begin(), start_.end()), x_[0]},
                         m_ = {Doubles(adama_size), Doubles(adama_size)}, v_ = m_;
  int updates_ = 0, own_[2] = {};
  uint64_t skipped_ = 0;
};

}  // namespace

TEST_CASE("adama: the published rule, with weights, scaling and a short window") {
  on_each_device([] {
    constexpr int n = 3;
    for (const LossScaler& scaler : {LossScaler::none(), LossScaler::dynamic(256, 2, 0.5f, 2)}) {
      const AdamAOptions options{.lr = 0.02f, .weight_decay = 0.1f};
      AdamAModel model(options);
      const Tensor w = parameter(some_values(adama_size, 50));
      AdamA optimizer({w}, n, options);
      optimizer.set_scaler(scaler);
      for (int t = 0; t < 4; ++t) {
        const std::vector<double> weights = {1, 1.5, t == 3 ? 0.0 : 0.5};
        for (int i = 0; i < (t == 3 ? 2 : n); ++i) {
          optimizer.backward(loss_with(w, window_gradient(t, i)),
                             static_cast<float>(weights[size_t(i)]));
          CHECK(!w.grad().defined());
          CHECK(optimizer.step() == (i == n - 1));
          optimizer.zero_grad();
        }
        CHECK(optimizer.flush() == (t == 3));
        model.window(t, n, weights);
        CHECK(largest_difference(w.to_vector(), model.w) < 2e-6);
      }
      CHECK(optimizer.updates() == 4);
    }
  });
}

TEST_CASE("adama: each pair of its options, against the rule in double") {
  on_each_device([] {
    for (const std::vector<size_t>& row : covering_rows(AdamAPair::levels())) {
      INFO(fmt::format("{}", fmt::join(row, " ")));
      AdamAPair(Levels{row.data()}).run();
    }
  });
}

TEST_CASE("adama: one micro-batch is AdamW; its mean gradient is Accumulate's") {
  on_each_device([] {
    const Tensor a = parameter(some_values(adama_size, 50)),
                 b = parameter(some_values(adama_size, 50));
    AdamA adama({a}, 1, {.lr = 0.02f, .weight_decay = 0.1f});
    AdamW adamw({b}, {.lr = 0.02f, .weight_decay = 0.1f});
    for (int t = 0; t < 5; ++t) {
      adama.backward(loss_with(a, window_gradient(t, 0)));
      CHECK(adama.step());
      adamw.zero_grad();
      adamw.backward(loss_with(b, window_gradient(t, 0)));
      adamw.step();
    }
    const Values expected = b.to_vector();
    CHECK(largest_difference(a.to_vector(), {expected.begin(), expected.end()}) < 1e-6);

    const Tensor c = parameter(some_values(adama_size, 50)),
                 d = parameter(some_values(adama_size, 50));
    AdamA folded({c}, 4);
    Accumulate kept(Adam({d}), 4);
    for (int i = 0; i < 8; ++i) {
      folded.backward(loss_with(c, window_gradient(0, i)));
      folded.step();
      kept.backward(loss_with(d, window_gradient(0, i)));
      kept.step();
      kept.zero_grad();
    }
    const auto mean_of = [](const Optimizer& o) { return o.state()[1].second.to_vector(); };
    const Values m = mean_of(kept);
    CHECK(folded.state()[1].first.starts_with("exp_avg."));
    CHECK(largest_difference(mean_of(folded), {m.begin(), m.end()}) < 1e-6);
  });
}

TEST_CASE("adama: an overflow leaves out its micro-batch, and the scale falls") {
  on_each_device([] {
    const Tensor w = parameter(some_values(adama_size, 50)),
                 v = parameter(some_values(adama_size, 50));
    AdamA hit({w}, 3), spared({v}, 3);
    hit.set_scaler(LossScaler::dynamic(16, 2, 0.5f, 100));
    for (int i = 0; i < 3; ++i) {
      hit.backward(loss_with(w, window_gradient(0, i)) * (i == 1 ? infinity : 1.0f));
      hit.step();
      spared.backward(loss_with(v, window_gradient(0, i)),
                      i == 1 ? 0 : 1);  // weight 0: not run at all
      spared.step();
    }
    const Values expected = v.to_vector();
    CHECK(largest_difference(w.to_vector(), {expected.begin(), expected.end()}) < 1e-6);
    CHECK(hit.loss_scale() == 8);
    CHECK(hit.skipped() == 1);
    CHECK(hit.updates() == 1);
  });
}

TEST_CASE("adama: a run goes on inside a window, bit for bit") {
  on_each_device([] {
    const auto run = [](int resume_at) {
      Tensor w = parameter(some_values(adama_size, 50), "w"), other = parameter({1, 2}, "other");
      auto optimizer = std::make_unique<AdamA>(std::vector{w, other}, 4);
      for (int i = 0; i < 10; ++i) {
        if (i == resume_at) {
          const auto old = std::move(optimizer);
          const Values values = w.to_vector(), others = other.to_vector();
          w = parameter(values, "w"), other = parameter(others, "other");
          optimizer = std::make_unique<AdamA>(std::vector{w, other}, 4);
          optimizer->load_state(old->state());
          CHECK(optimizer->position() == static_cast<uint32_t>(resume_at) % 4);
        }
        Tensor loss = loss_with(w, window_gradient(0, i));
        if (i % 4 == 1) loss = loss + sum(other);
        optimizer->backward(loss);
        optimizer->step();
      }
      optimizer->flush();
      Values all = w.to_vector();
      for (const float x : other.to_vector()) all.push_back(x);
      return all;
    };
    const Values whole = run(-1);
    for (const int at : {1, 2, 4, 7}) CHECK(run(at) == whole);
  });
}

TEST_CASE("adama: no gradients in memory, as a dry run says") {
  on_each_device([] {
    constexpr int64_t width = 128, layers = 8;
    const auto program = [&](bool folds) {
      Sequential net;
      for (int64_t i = 0; i < layers; ++i) net.emplace<Linear>(width, width, false);
      std::unique_ptr<Optimizer> optimizer;
      if (folds)
        optimizer = std::make_unique<AdamA>(net.parameters(), 3);
      else
        optimizer = std::make_unique<Accumulate>(Adam(net.parameters()), 3);
      default_device()->reset_peak();
      for (int t = 0; t < 6; ++t) {
        optimizer->backward(mean(net(full({4, width}, 1.0f))));
        optimizer->step();
        optimizer->zero_grad();
        default_device()->end_step();
      }
      return default_device()->memory_report();
    };
    const MemoryReport kept = program(false), folded = program(true);
    const uint64_t one = width * width * sizeof(float);
    CHECK(folded.peak + (layers - 2) * one <= kept.peak);
    CHECK(plan([&] { (void)program(true); }).memory.peak == folded.peak);
  });
}

TEST_CASE("adama: what must not be") {
  on_each_device([] {
    const Tensor w = parameter({1, 2});
    CHECK_THROWS_AS(AdamA({parameter({1})}, 0), ValueError);
    CHECK_THROWS_AS(AdamA({parameter({1})}, 2, {.beta1 = 1}), ValueError);
    AdamA optimizer({w}, 2);
    CHECK_THROWS_AS(optimizer.step(), AutogradError);
    optimizer.backward(loss_with(w, {1, 1}));
    CHECK_THROWS_AS(optimizer.backward(loss_with(w, {1, 1})), AutogradError);
    CHECK_THROWS_AS(optimizer.flush(), AutogradError);
    CHECK_THROWS_AS(optimizer.state(), AutogradError);
    optimizer.step();
    CHECK_THROWS_AS(optimizer.load_state({}), AutogradError);
    optimizer.set_max_norm(1);
    CHECK_THROWS_AS(optimizer.backward(loss_with(w, {1, 1})), ValueError);
  });
}
