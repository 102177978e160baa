#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "backends/reference/chunks.h"
#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

double cosine(double high, double low, double progress) {
  return low + (high - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

double one_cycle(const UpdatePrepareParams& p, double t) {
  if (t <= p.peak) return cosine(p.gamma, 1, t / p.peak);
  return cosine(1, p.floor_factor, std::min(1.0, (t - p.peak) / (p.total - 1.0 - p.peak)));
}

double restarts(const UpdatePrepareParams& p, double since) {
  double length = p.period;
  if (p.gamma == 1)
    since = std::fmod(since, length);
  else
    for (; since >= length; length *= p.gamma) since -= length;
  return cosine(1, p.floor_factor, since / length);
}

double multistep(const UpdatePrepareParams& p, double t) {
  const auto reached = std::count_if(std::begin(p.milestones), std::end(p.milestones),
                                     [=](uint32_t milestone) { return milestone <= t; });
  return std::pow(double{p.gamma}, static_cast<double>(reached));
}

// Returns the factor on the learning rate of the update that follows `t` others.
double schedule_factor(const UpdatePrepareParams& p, double t) {
  if (p.schedule == SCHEDULE_NOAM)
    return p.gamma * std::min(std::sqrt(p.warmup / (t + 1)), (t + 1) / p.warmup);
  if (p.schedule == SCHEDULE_ONE_CYCLE) return one_cycle(p, t);
  if (t < p.warmup) return (t + 1) / p.warmup;
  const double since = t - p.warmup;
  const double length = p.total > p.warmup ? p.total - p.warmup : 1;
  const double progress = std::min(1.0, since / length);
  const double floor = p.floor_factor, gamma = p.gamma;
  switch (p.schedule) {
    case SCHEDULE_COSINE:
      return cosine(1, floor, progress);
    case SCHEDULE_LINEAR:
      return 1 - (1 - floor) * progress;
    case SCHEDULE_STEP:
      return std::pow(gamma, std::floor(since / std::max(1u, p.period)));
    case SCHEDULE_POLYNOMIAL:
      return floor + (1 - floor) * std::pow(1 - progress, gamma);
    case SCHEDULE_MULTISTEP:
      return multistep(p, t);
    case SCHEDULE_RESTARTS:
      return restarts(p, since);
    default:
      return 1;
  }
}

void set_count(Elements& state, uint64_t slot, double n) {
  set_digits(state, slot, slot + STATE_HIGH, n);
}
void count(Elements& state, uint64_t slot) {
  set_count(state, slot, count_of(state, slot) + 1);
}

void update_loss_scale(const UpdatePrepareParams& p, bool overflow, Elements& state) {
  Real scale = state.get(STATE_SCALE);
  double good = count_of(state, STATE_GOOD), bad = count_of(state, STATE_BAD);
  if (overflow) {
    good = 0;
    bad += 1;
    if (bad >= p.hysteresis) {
      const Real lower = std::max<Real>(p.min_scale, scale * p.backoff);
      if (lower < scale) count(state, STATE_FALLS);
      scale = lower;
      bad = 0;
    }
  } else {
    good += 1;
    if (p.keep_bad == 0) bad = 0;
    if (good >= p.interval) {
      const Real higher = std::min<Real>(p.max_scale, scale * p.growth);
      if (higher > scale) {
        count(state, STATE_GROWTHS);
        set_count(state, STATE_FALLS, 0);
      }
      scale = higher;
      good = bad = 0;
    }
  }
  state.set(STATE_SCALE, scale);
  set_count(state, STATE_GOOD, good);
  set_count(state, STATE_BAD, bad);
}

// Sets the factors of an update whose gradients have this norm, and counts the update.
void begin_update(const UpdatePrepareParams& p, double unscale, double norm, bool clips,
                  Elements& state) {
  const double updates = count_of(state, STATE_UPDATES);
  const double clip = clips ? std::min(1.0, p.max_norm / (norm + 1e-6)) : 1.0;
  state.set(STATE_GRAD_FACTOR, static_cast<Real>(unscale * clip));
  state.set(STATE_LR_FACTOR, static_cast<Real>(schedule_factor(p, updates)));
  set_count(state, STATE_UPDATES, updates + 1);
}

bool has_overflow(const UpdatePrepareParams& p, const Elements& partial, uint64_t first) {
  bool overflow = false;
  for (uint64_t c = 0; c < p.chunks; ++c) overflow = overflow || partial.get(first + c) != 0;
  return overflow;
}

// Computes the norm and updates the loss scale. Returns whether there was an overflow, which counts
// as a skipped update.
bool judge(const UpdatePrepareParams& p, uint32_t part, const Elements& partial, double unscale,
           Elements& state, double& norm) {
  double squares = 0;
  for (uint64_t c = 0; c < p.chunks; ++c) {
    const double scale = partial.get(2 * uint64_t{p.chunks} + c);
    if (scale > 0) squares += partial.get(c) / (scale * scale);
  }
  bool overflow = has_overflow(p, partial, p.chunks), voided = false;
  if (part == PREPARE_WINDOW) {
    overflow = overflow || state.get(STATE_WINDOW_WEIGHT) == 0;
    voided = count_of(state, STATE_WINDOW_VOIDED) > 0;
  }
  norm = std::sqrt(squares) * unscale;
  if (part == PREPARE_ALL || !overflow) state.set(STATE_GRAD_NORM, static_cast<Real>(norm));
  state.set(STATE_FOUND_INF, overflow ? 1 : 0);
  if (p.dynamic != 0) update_loss_scale(p, overflow || voided, state);
  if (overflow) count(state, STATE_SKIPPED);
  set_count(state, STATE_SKIPPED_IN_A_ROW,
            overflow ? count_of(state, STATE_SKIPPED_IN_A_ROW) + 1 : 0);
  return overflow;
}

// Judges a micro-batch alone.
void judge_micro_batch(const UpdatePrepareParams& p, const Elements& partial, Elements& state) {
  const bool overflow = has_overflow(p, partial, p.chunks);
  state.set(STATE_FOUND_INF, overflow ? 1 : 0);
  if (!overflow) return state.set(STATE_WINDOW_WEIGHT, state.get(STATE_WINDOW_WEIGHT) + p.weight);
  count(state, STATE_WINDOW_VOIDED);
  count(state, STATE_VOIDED);
}

}  // namespace

void grad_stats(const Call& call) {
  const auto p = call.params<GradStatsParams>();
  const Elements g = call.in(0), table = call.in(1);
  Elements partial = call.out(2);
  for (uint64_t row = p.first; row < p.first + p.rows; ++row) {
    const Chunk chunk = chunk_of(table, row);
    double squares = 0, largest = 0;
    bool finite = true;
    for (uint64_t i = 0; i < chunk.size; ++i) {
      const double value = g.get(chunk.grad + i);
      squares += value * value;
      largest = std::max(largest, std::abs(value));
      finite = finite && std::isfinite(value);
    }
    const double scale = finite && largest >= 0x1p40   ? SQUARES_DOWN
                         : finite && largest < 0x1p-50 ? SQUARES_UP
                                                       : 1;
    partial.set(chunk.number, static_cast<Real>(squares * scale * scale));
    partial.set(p.chunks + chunk.number, finite ? 0 : 1);
    partial.set(2 * uint64_t{p.chunks} + chunk.number,
                static_cast<Real>(chunk.size == 0 ? 0 : scale));
  }
}

void update_prepare(const Call& call) {
  const auto p = call.params<UpdatePrepareParams>();
  const Elements partial = call.in(0);
  Elements state = call.inout(1);
  const uint32_t part = call.variant(0);
  const double weight = part == PREPARE_WINDOW ? state.get(STATE_WINDOW_WEIGHT) : p.weight;
  // Uses the scale in force when the gradients were made, not the one set below.
  const double unscale = weight > 0 ? 1.0 / (double{state.get(STATE_SCALE)} * weight) : 0;
  double norm = 0;
  switch (part) {
    case PREPARE_ALL:
    case PREPARE_WINDOW:
      if (!judge(p, part, partial, unscale, state, norm))
        begin_update(p, unscale, norm, p.max_norm > 0, state);
      break;
    case PREPARE_BEGIN:
      state.set(STATE_FOUND_INF, 0);
      begin_update(p, unscale, state.get(STATE_GRAD_NORM),
                   p.max_norm > 0 && count_of(state, STATE_UPDATES) > 0, state);
      break;
    case PREPARE_CHECK:
      if (has_overflow(p, partial, 0)) state.set(STATE_FOUND_INF, 1);
      break;
    case PREPARE_END:
      if (judge(p, part, partial, unscale, state, norm))
        set_count(state, STATE_UPDATES, std::max(1.0, count_of(state, STATE_UPDATES)) - 1);
      break;
    case PREPARE_PART:
      state.set(STATE_FOUND_INF, 0);
      state.set(STATE_GRAD_FACTOR, static_cast<Real>(unscale));
      break;
    case PREPARE_JUDGE:
      judge(p, part, partial, unscale, state, norm);
      break;
    case PREPARE_MICRO_BATCH:
      judge_micro_batch(p, partial, state);
  }
}

void count_missed(const Call& call) {
  const auto p = call.params<GradStatsParams>();
  const Elements partial = call.in(0);
  Elements state = call.inout(1);
  if (state.get(STATE_FOUND_INF) != 0) return;
  for (uint64_t c = 0; c < p.chunks; ++c) {
    const uint64_t low = STATE_MISSED(c), high = low + 1;
    if (partial.get(2 * uint64_t{p.chunks} + c) == 0)
      set_digits(state, low, high, digits_of(state, low, high) + 1);
  }
}

void sgd(const Call& call) {
  const auto p = call.params<SgdParams>();
  const Elements grad = call.in(1), table = call.in(3), state = call.in(4);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements param = call.inout(0), momentum = call.inout(2);
  const double lr = double{p.lr} * state.get(STATE_LR_FACTOR);
  const double factor = (p.maximize != 0 ? -1.0 : 1.0) * state.get(STATE_GRAD_FACTOR);
  bool is_first = false;
  const auto begin = [&](const Chunk& chunk) { is_first = own_updates(state, chunk.number) == 1; };
  each_element(table, p, begin, [&](uint64_t i, uint64_t at) {
    double g = factor * grad.get(at) + double{p.weight_decay} * param.get(i);
    if (p.momentum != 0) {
      const double buffer =
          is_first ? g : double{p.momentum} * momentum.get(i) + (1.0 - double{p.dampening}) * g;
      momentum.set(i, static_cast<Real>(buffer));
      g = p.nesterov != 0 ? g + p.momentum * buffer : buffer;
    }
    param.set(i, static_cast<Real>(param.get(i) - lr * g));
  });
}

namespace {

// Returns Adam's update of one element, by the parameters of its kernels.
template <class P>
class AdamStep {
 public:
  AdamStep(const P& p, const Elements& state)
      : p_(p),
        factor_(state.get(STATE_GRAD_FACTOR)),
        lr_(double{p.lr} * state.get(STATE_LR_FACTOR)) {}

  // The elements that follow are of a parameter with so many updates.
  void set_updates(double t) {
    correction1_ = 1 - std::pow(double{p_.beta1}, t);
    correction2_ = 1 - std::pow(double{p_.beta2}, t);
  }

  void operator()(double& x, double gradient, double& m, double& v) const {
    const double beta1 = p_.beta1, beta2 = p_.beta2, decay = p_.weight_decay;
    double g = factor_ * gradient;
    if (p_.decoupled != 0)
      x *= 1 - lr_ * decay;
    else
      g += decay * x;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    x -= lr_ / correction1_ * m / (std::sqrt(v) / std::sqrt(correction2_) + p_.eps);
  }

 private:
  const P& p_;
  double factor_, lr_, correction1_ = 1, correction2_ = 1;
};

// Counts the bounds below x / scale.
int code_of(Real x, Real scale, const std::vector<double>& bounds) {
  const auto below = [&](double bound) { return x > static_cast<Real>(bound) * scale; };
  return static_cast<int>(std::partition_point(bounds.begin(), bounds.end() - 1, below) -
                          bounds.begin());
}

}  // namespace

void adam(const Call& call) {
  const auto p = call.params<AdamParams>();
  const Elements grad = call.in(1), table = call.in(4), state = call.in(5);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements param = call.inout(0), m = call.inout(2), v = call.inout(3);
  AdamStep step(p, state);
  const auto begin = [&](const Chunk& chunk) {
    step.set_updates(own_updates(state, chunk.number));
  };
  each_element(table, p, begin, [&](uint64_t i, uint64_t at) {
    double x = param.get(i), m1 = m.get(i), v1 = v.get(i);
    step(x, grad.get(at), m1, v1);
    m.set(i, static_cast<Real>(m1));
    v.set(i, static_cast<Real>(v1));
    param.set(i, static_cast<Real>(x));
  });
}

void adam_8bit(const Call& call) {
  const auto p = call.params<Adam8bitParams>();
  const Elements grad = call.in(1), maps = call.in(6), state = call.in(7);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements param = call.inout(0), m = call.inout(2), v = call.inout(3), absmax_m = call.inout(4),
           absmax_v = call.inout(5);
  AdamStep step(p, state);
  step.set_updates(own_updates(state, p.own));
  const std::vector<double> map_m = maps.to_doubles(0, 256), bounds_m = maps.to_doubles(256, 256),
                            map_v = maps.to_doubles(512, 256), bounds_v = maps.to_doubles(768, 256);
  for (uint64_t begin = 0; begin < p.n; begin += ADAM_8BIT_BLOCK) {
    const uint64_t size = std::min<uint64_t>(ADAM_8BIT_BLOCK, p.n - begin),
                   block = begin / ADAM_8BIT_BLOCK;
    const double scale_m = absmax_m.get(block), scale_v = absmax_v.get(block);
    std::array<Real, ADAM_8BIT_BLOCK> new_m, new_v;
    Real most_m = 0, most_v = 0;
    for (uint64_t k = 0; k < size; ++k) {
      const uint64_t i = begin + k;
      double x = param.get(i), m1 = map_m[static_cast<size_t>(m.geti(i))] * scale_m,
             v1 = map_v[static_cast<size_t>(v.geti(i))] * scale_v;
      step(x, grad.get(i), m1, v1);
      param.set(i, static_cast<Real>(x));
      new_m[k] = static_cast<Real>(m1);
      new_v[k] = static_cast<Real>(std::min(v1, double{std::numeric_limits<float>::max()}));
      most_m = std::max(most_m, std::abs(new_m[k]));
      most_v = std::max(most_v, new_v[k]);
    }
    for (uint64_t k = 0; k < size; ++k) {
      m.seti(begin + k, code_of(new_m[k], most_m, bounds_m));
      v.seti(begin + k, std::max(code_of(new_v[k], most_v, bounds_v), new_v[k] > 0 ? 1 : 0));
    }
    absmax_m.set(block, most_m);
    absmax_v.set(block, most_v);
  }
}

}  // namespace rw::reference
