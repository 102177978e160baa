// Each pair of options of an optimizer, its loss scaler, its windows and its inputs, against plain
// loops in double.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>

#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/schedules/schedule.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/optim/pairs/covering_array.h"
#include "tests/optim/pairs/plain_updates.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr size_t pair_rows = 4, pair_cols = 160;  // of the matrix; sums of its squares overflow
constexpr int pair_windows = 8;

// The options that all optimizers share.
struct Circumstances {
  static std::vector<size_t> levels() { return {6, 2, 2, 5, 3, 2, 2, 3, 3, 2, 2, 2}; }
  uint32_t micro_batches;  // 0: no window around the optimizer
  bool is_short;           // the last window
  std::optional<FusedPasses> fused;
  bool is_narrow;  // f16, compensated
  bool is_weighted;
  LossScaler scaler;
  std::vector<int> overflows;  // windows with one
  bool voids_micro_batch;
  float max_norm, gradient_size, parameter_size;
  Schedule schedule;
  bool has_groups, misses;  // the vector has rates of its own; it has no gradient at times

  // `small` and `large` are sizes of gradients.
  Circumstances(Levels& l, float small, float large) {
    LossScaler patient = LossScaler::dynamic(64, 4, 0.25f, 2), bounded = patient;
    patient.hysteresis = bounded.hysteresis = 2;
    patient.keep_bad = true;
    bounded.floor = 32, bounded.ceiling = 128;
    const int window = l.pick({0, 1, 2, 3, 4, 5});
    micro_batches = std::array{0u, 1u, 3u, 3u, 0u, 0u}[static_cast<size_t>(window)];
    is_short = window == 3;
    if (window > 3) fused = window == 4 ? FusedPasses::one : FusedPasses::two;
    is_narrow = l.pick({false, true});
    is_weighted = l.pick({false, true});
    scaler = l.pick({LossScaler::none(), LossScaler::fixed(8), LossScaler::dynamic(64, 2, 0.5f, 2),
                     patient, bounded});
    overflows = l.pick<std::vector<int>>({{}, {1, 2, 4}, {0, 3, 5}});
    voids_micro_batch = l.pick({false, true}) && !is_narrow;
    max_norm = l.pick({0.0f, 0.5f});
    gradient_size = l.pick({1.0f, large, small});
    if (is_narrow) gradient_size = 1;
    parameter_size = l.pick({1.0f, 1e20f, 1e-25f});
    schedule = l.pick({Schedule::constant(), Schedule::linear(10, 3, 0.25f)});
    has_groups = l.pick({false, true});
    misses = l.pick({false, true});
    // One pass clips by another norm, and has begun to update when it meets an overflow.
    if (fused == FusedPasses::one) max_norm = 0, overflows.clear();
  }
  bool has_gradient(size_t parameter, int window) const {
    return parameter == 0 || !misses || window % 3 != 0;
  }
};

// An optimizer, and the same in double: an update for each of the two parameters.
struct Pairing {
  std::unique_ptr<Optimizer> optimizer;
  std::vector<PlainUpdate> plain;
  float lr, decay, lr_of_vector = lr, decay_of_vector = decay;
};

template <class Made, class Options>
Pairing pairing(const std::vector<ParameterGroup>& groups, const Options& options,
                const PlainUpdate& plain, const PlainUpdate& plain_of_vector) {
  Pairing p{std::make_unique<Made>(groups, options),
            {plain, plain_of_vector},
            options.lr,
            options.weight_decay};
  if (groups.size() > 1)
    p.lr_of_vector *= groups[1].lr_scale, p.decay_of_vector = *groups[1].weight_decay;
  return p;
}

template <class Made, class Options>
Pairing pairing(const std::vector<ParameterGroup>& groups, const Options& options,
                const PlainUpdate& plain) {
  return pairing<Made>(groups, options, plain, plain);
}

Pairing sgd_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  SGDOptions o{.lr = 0.05f, .momentum = l.pick({0.0f, 0.9f}), .dampening = l.pick({0.0f, 0.5f})};
  o.weight_decay = l.pick({0.0f, 0.02f});
  o.nesterov = l.pick({false, true}) && o.momentum > 0;
  if (o.nesterov) o.dampening = 0;
  o.maximize = l.pick({false, true});
  return pairing<SGD>(groups, o, plain_sgd(o));
}

Pairing adam_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  AdamWOptions o{.lr = 0.05f};
  const bool is_decoupled = l.pick({false, true});
  std::tie(o.beta1, o.beta2) = l.pick<std::pair<float, float>>({{0.9f, 0.999f}, {0.5f, 0.9f}});
  o.eps = l.pick({1e-8f, 1e-3f});
  o.weight_decay = l.pick({0.0f, 0.02f});
  o.amsgrad = l.pick({false, true});
  const PlainUpdate plain = plain_adam(o, is_decoupled);
  if (is_decoupled) return pairing<AdamW>(groups, o, plain);
  return pairing<Adam>(
      groups, AdamOptions{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad}, plain);
}

Pairing adam8bit_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  AdamWOptions o{.lr = 0.05f};
  const bool is_decoupled = l.pick({false, true});
  std::tie(o.beta1, o.beta2) = l.pick<std::pair<float, float>>({{0.9f, 0.999f}, {0.5f, 0.9f}});
  o.eps = l.pick({1e-8f, 1e-3f});
  o.weight_decay = l.pick({0.0f, 0.02f});
  const PlainUpdate plain = plain_adam(o, is_decoupled, true);
  if (is_decoupled) return pairing<AdamW8bit>(groups, o, plain);
  return pairing<Adam8bit>(groups, AdamOptions{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay},
                           plain);
}

Pairing adagrad_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  AdagradOptions o{.lr = 0.05f, .lr_decay = l.pick({0.0f, 0.3f})};
  o.weight_decay = l.pick({0.0f, 0.02f});
  o.initial_accumulator_value = l.pick({0.0f, 0.2f});
  o.eps = l.pick({1e-10f, 1e-3f});
  return pairing<Adagrad>(groups, o, plain_adagrad(o));
}

Pairing rmsprop_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  RMSpropOptions o{.lr = 0.05f, .alpha = l.pick({0.99f, 0.7f}), .eps = l.pick({1e-8f, 1e-3f})};
  o.weight_decay = l.pick({0.0f, 0.02f});
  o.momentum = l.pick({0.0f, 0.8f});
  o.centered = l.pick({false, true});
  return pairing<RMSprop>(groups, o, plain_rmsprop(o));
}

Pairing lion_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  LionOptions o{.lr = 0.05f, .beta1 = l.pick({0.9f, 0.5f}), .beta2 = l.pick({0.99f, 0.6f})};
  o.weight_decay = l.pick({0.0f, 0.02f});
  return pairing<Lion>(groups, o, plain_lion(o));
}

Pairing lamb_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  LambOptions o{.lr = 0.05f, .beta1 = l.pick({0.9f, 0.5f}), .beta2 = l.pick({0.999f, 0.9f})};
  o.eps = l.pick({1e-6f, 1e-3f});
  o.weight_decay = l.pick({0.0f, 0.02f});
  return pairing<Lamb>(groups, o, plain_lamb(o));
}

Pairing adafactor_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  AdafactorOptions o{.lr = 0.6f, .beta2_decay = l.pick({-0.8f, -0.5f})};
  o.eps1 = l.pick({1.1920929e-7f, 1e-18f});
  o.eps2 = l.pick({1e-3f, 0.9f});
  o.clip = l.pick({1.0f, 0.1f});
  o.weight_decay = l.pick({0.0f, 0.02f});
  o.relative_step = l.pick({false, true});
  o.scale_parameter = l.pick({false, true});
  return pairing<Adafactor>(groups, o, plain_adafactor(o, pair_rows, pair_cols),
                            plain_adafactor(o, 1, 7));
}

// The vector is AdamW's.
Pairing muon_pair(Levels& l, const std::vector<ParameterGroup>& groups) {
  MuonOptions o{.lr = 0.05f, .weight_decay = l.pick({0.0f, 0.02f})};
  o.momentum = l.pick({0.95f, 0.5f});
  o.nesterov = l.pick({false, true});
  o.eps = l.pick({1e-7f, 1e-30f});
  o.ns_steps = l.pick({5, 2});
  o.adjust_lr = l.pick({MuonRate::original, MuonRate::match_rms_adamw});
  const AdamWOptions others{.lr = 0.01f, .weight_decay = 0.05f};
  std::vector<Tensor> all;
  for (const ParameterGroup& group : groups)
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  Pairing p{std::make_unique<Muon>(std::vector{all[0]}, o, std::vector{all[1]}, others),
            {},
            o.lr,
            o.weight_decay,
            others.lr,
            others.weight_decay};
  p.plain = {plain_muon(o, pair_rows, pair_cols), plain_adam(others, true)};
  return p;
}

// None is near 0, and matrices of them have full rank.
Values waves(size_t n, int seed, float size) {
  Values values;
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<double>(i);
    const double wave = std::sin(0.37 * at * at + 1.7 * at + 2.3 * seed);
    values.push_back(size * static_cast<float>(wave < 0 ? wave - 0.2 : wave + 0.2));
  }
  return values;
}

struct PairKind {
  std::string name;
  std::vector<size_t> levels;
  // Sizes of gradients. Where decay and gradient are alike, Adam's steps would magnify roundings;
  // second moments are f32, which holds squares up to 3e38.
  float small, large;
  Pairing (*make)(Levels&, const std::vector<ParameterGroup>&);
  size_t cols = pair_cols;
  double flips = 0;  // the share of values whose moment is next to a bound, and gets another code
};

// A run of the optimizer beside that of the plain loops.
class PairRun {
 public:
  PairRun(const PairKind& kind, const size_t* row)
      : levels_{row}, c_(levels_, kind.small, kind.large), flips_(kind.flips) {
    const Shape shapes[] = {{pair_rows, static_cast<int64_t>(kind.cols)}, {7}};
    for (const Shape& shape : shapes) {
      const Values start =
          waves(static_cast<size_t>(shape.numel()), shape.rank(), c_.parameter_size);
      parameters_.push_back(tensor(start, shape).set_requires_grad());
      x_.push_back(doubles(start));
    }
    std::vector<ParameterGroup> groups = {{.parameters = {parameters_[0]}}};
    if (c_.has_groups)
      groups.push_back({.parameters = {parameters_[1]}, .lr_scale = 0.5f, .weight_decay = 0.01f});
    else
      groups[0].parameters.push_back(parameters_[1]);
    pairing_ = kind.make(levels_, groups);
    if (c_.micro_batches > 0) {
      auto windows = std::make_unique<Accumulate>(std::move(*pairing_.optimizer), c_.micro_batches);
      if (c_.is_narrow) windows->set_buffer(DType::f16, true);
      if (c_.voids_micro_batch) windows->set_overflow(Accumulate::Overflow::voids_micro_batch);
      pairing_.optimizer = std::move(windows);
    }
    if (c_.fused)
      pairing_.optimizer =
          std::make_unique<FusedBackward>(std::move(*pairing_.optimizer), *c_.fused);
    Optimizer& optimizer = *pairing_.optimizer;
    optimizer.set_scaler(c_.scaler);
    optimizer.set_schedule(c_.schedule);
    optimizer.set_max_norm(c_.max_norm);
    scale_.o = c_.scaler, scale_.scale = c_.scaler.initial;
  }

  void run() {
    for (int window = 0; window < pair_windows; ++window) {
      CAPTURE(window);
      run_window(window);
      CHECK(pairing_.optimizer->loss_scale() == scale_.scale);
      CHECK(pairing_.optimizer->updates() == static_cast<uint64_t>(updates_));
      CHECK(pairing_.optimizer->skipped() == static_cast<uint64_t>(window + 1 - updates_));
      for (size_t i = 0; i < 2; ++i) check_close(parameters_[i].to_vector(), x_[i]);
    }
  }

 private:
  void run_window(int window) {
    const uint32_t most = std::max(c_.micro_batches, 1u);
    const uint32_t count = c_.is_short && window + 1 == pair_windows ? most - 1 : most;
    const bool overflows =
        std::find(c_.overflows.begin(), c_.overflows.end(), window) != c_.overflows.end();
    const bool voids_one = c_.voids_micro_batch && most > 1;
    std::array<Doubles, 2> sums = {Doubles(x_[0].size()), Doubles(x_[1].size())};
    double total = 0;
    pairing_.optimizer->zero_grad();
    for (uint32_t k = 0; k < count; ++k) {
      const float weight =
          c_.is_weighted && c_.micro_batches > 0 ? std::array{1.0f, 2.0f, 0.5f}[k] : 1;
      const bool is_void = overflows && k == 0;
      Tensor loss;
      for (size_t i = 0; i < 2; ++i) {
        if (!c_.has_gradient(i, window)) continue;
        Values g =
            waves(x_[i].size(), static_cast<int>(10 * k + i) + 100 * window, c_.gradient_size);
        for (size_t j = 0; j < g.size() && !is_void; ++j) sums[i][j] += double{weight} * g[j];
        if (is_void) g[0] = std::numeric_limits<float>::infinity();
        const Tensor part = loss_with(parameters_[i], g);
        loss = loss.defined() ? loss + part : part;
      }
      if (!is_void) total += weight;
      pairing_.optimizer->backward(loss, weight);
      pairing_.optimizer->step();
    }
    if (count < most) CHECK(pairing_.optimizer->flush());
    scale_.note(overflows);
    if (overflows && (!voids_one || total == 0)) return;
    update(sums, total, window);
  }

  void update(std::array<Doubles, 2>& g, double total, int window) {
    double squares = 0;
    for (size_t i = 0; i < 2; ++i)
      for (double& v : g[i]) v /= total, squares += v * v;
    const double norm = std::sqrt(squares);
    CHECK(pairing_.optimizer->grad_norm() == doctest::Approx(norm).epsilon(1e-4));
    const double clip = c_.max_norm > 0 ? std::min(1.0, c_.max_norm / (norm + 1e-6)) : 1;
    const double warm = (updates_ + 1) / 3.0, done = std::min(1.0, (updates_ - 3) / 7.0);
    const double factor = c_.schedule.kind == Schedule::Kind::constant ? 1
                          : updates_ < 3                               ? warm
                                                                       : 1 - 0.75 * done;
    ++updates_;
    for (size_t i = 0; i < 2; ++i) {
      if (!c_.has_gradient(i, window)) continue;
      for (double& v : g[i]) v *= clip;
      const double lr = factor * (i == 0 ? pairing_.lr : pairing_.lr_of_vector);
      pairing_.plain[i](x_[i], g[i], lr, i == 0 ? pairing_.decay : pairing_.decay_of_vector,
                        ++own_[i]);
    }
  }

  void check_close(const Values& actual, const Doubles& expected) const {
    double size = 0;
    for (const double v : expected) size = std::max(size, std::abs(v));
    size_t apart = 0, last = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      if (!(std::abs(actual[i] - expected[i]) <= 1e-4 * (std::abs(expected[i]) + 0.1 * size)))
        ++apart, last = i;
    if (static_cast<double>(apart) > flips_ * static_cast<double>(expected.size()))
      FAIL_CHECK(fmt::format("{} of {} elements differ, number {} is {}, not {}", apart,
                             expected.size(), last, actual[last], expected[last]));
  }

  Levels levels_;
  Circumstances c_;
  const double flips_;
  std::vector<Tensor> parameters_;
  std::vector<Doubles> x_;
  Pairing pairing_;
  PlainScale scale_;
  int updates_ = 0, own_[2] = {};
};

}  // namespace

TEST_CASE("option pairs: optimizers, scalers and windows are those of plain loops") {
  const PairKind kinds[] = {{"sgd", {2, 2, 2, 2, 2}, 1e-20f, 1e20f, sgd_pair},
                            {"adam", {2, 2, 2, 2, 2}, 1e-3f, 3e18f, adam_pair},
                            {"adam8bit", {2, 2, 2, 2}, 1e-3f, 3e18f, adam8bit_pair, 1100, 0.01},
                            {"adagrad", {2, 2, 2, 2}, 1e-3f, 3e18f, adagrad_pair},
                            {"rmsprop", {2, 2, 2, 2, 2}, 1e-3f, 3e18f, rmsprop_pair},
                            {"lion", {2, 2, 2}, 1e-20f, 1e20f, lion_pair},
                            {"lamb", {2, 2, 2, 2}, 1e-20f, 1e19f, lamb_pair},
                            {"adafactor", {2, 2, 2, 2, 2, 2, 2}, 1e-20f, 3e18f, adafactor_pair},
                            {"muon", {2, 2, 2, 2, 2, 2}, 1e-20f, 1e20f, muon_pair}};
  on_each_device([&] {
    for (const PairKind& kind : kinds) {
      std::vector<size_t> levels = Circumstances::levels();
      levels.insert(levels.end(), kind.levels.begin(), kind.levels.end());
      for (const std::vector<size_t>& row : covering_rows(levels)) {
        INFO(kind.name, ": ", fmt::format("{}", fmt::join(row, " ")));
        PairRun(kind, row.data()).run();
      }
    }
  });
}
