// Update rules with moments of the gradient (RMSprop, Adagrad, Lion, AMSGrad, AdamA), and sums of a
// window's gradients.
#include <algorithm>
#include <cmath>

#include "backends/reference/chunks.h"
#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

// One call. A rule takes element i and its gradient, and changes its states and the parameter.
struct Moments {
  MomentUpdateParams p;
  Elements param, first, second, third;
  double lr, t = 1;

  void rmsprop(uint64_t i, double g) {
    const double x = param.get(i), alpha = p.a;
    g += double{p.weight_decay} * x;
    const double squares = alpha * first.get(i) + (1 - alpha) * g * g;
    first.set(i, static_cast<Real>(squares));
    double v = squares;
    if (p.flags != 0) {
      const double mean = alpha * third.get(i) + (1 - alpha) * g;
      third.set(i, static_cast<Real>(mean));
      v = std::max(0.0, v - mean * mean);
    }
    double u = g / (std::sqrt(v) + p.eps);
    if (p.b != 0) {
      u += double{p.b} * second.get(i);
      second.set(i, static_cast<Real>(u));
    }
    param.set(i, static_cast<Real>(x - lr * u));
  }

  void adagrad(uint64_t i, double g) {
    const double x = param.get(i);
    g += double{p.weight_decay} * x;
    const double sum = first.get(i) + g * g;
    first.set(i, static_cast<Real>(sum));
    const double rate = lr / (1 + (t - 1) * p.a);
    param.set(i, static_cast<Real>(x - rate * g / (std::sqrt(sum) + p.eps)));
  }

  void lion(uint64_t i, double g) {
    const double m = first.get(i), beta1 = p.a, beta2 = p.b;
    const double u = beta1 * m + (1 - beta1) * g;
    const double sign = u > 0 ? 1 : u < 0 ? -1 : 0;
    first.set(i, static_cast<Real>(beta2 * m + (1 - beta2) * g));
    param.set(i, static_cast<Real>(param.get(i) * (1 - lr * p.weight_decay) - lr * sign));
  }

  void amsgrad(uint64_t i, double g) {
    double x = param.get(i);
    if (p.flags != 0)
      x *= 1 - lr * p.weight_decay;
    else
      g += double{p.weight_decay} * x;
    const double beta1 = p.a, beta2 = p.b;
    const double m = beta1 * first.get(i) + (1 - beta1) * g;
    const double v = beta2 * second.get(i) + (1 - beta2) * g * g;
    const double largest = std::max<double>(third.get(i), v);
    first.set(i, static_cast<Real>(m));
    second.set(i, static_cast<Real>(v));
    third.set(i, static_cast<Real>(largest));
    const double root = std::sqrt(largest / (1 - std::pow(beta2, t)));
    param.set(i, static_cast<Real>(x - lr / (1 - std::pow(beta1, t)) * m / (root + p.eps)));
  }
};

}  // namespace

void moment_update(const Call& call) {
  const auto p = call.params<MomentUpdateParams>();
  const Elements grad = call.in(1), table = call.in(5), state = call.in(6);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Moments m{p,
            call.inout(0),
            call.inout(2),
            call.inout(3),
            call.inout(4),
            double{p.lr} * state.get(STATE_LR_FACTOR)};
  const double factor = state.get(STATE_GRAD_FACTOR);
  const auto begin = [&](const Chunk& chunk) { m.t = own_updates(state, chunk.number); };
  each_element(table, p, begin, [&](uint64_t i, uint64_t at) {
    const double g = factor * grad.get(at);
    switch (call.variant(0)) {
      case MOMENT_RMSPROP:
        return m.rmsprop(i, g);
      case MOMENT_ADAGRAD:
        return m.adagrad(i, g);
      case MOMENT_LION:
        return m.lion(i, g);
      default:
        return m.amsgrad(i, g);
    }
  });
}

void muon_momentum(const Call& call) {
  const auto p = call.params<MuonParams>();
  const Elements grad = call.in(0), state = call.in(3);
  Elements buffer = call.inout(1), update = call.out(2);
  const bool skips = state.get(STATE_FOUND_INF) != 0;
  for (uint64_t i = 0; i < p.n; ++i) {
    if (skips) {
      update.set(i, 0);
      continue;
    }
    const double g = double{state.get(STATE_GRAD_FACTOR)} * grad.get(i), before = buffer.get(i);
    const double m = before + (1 - double{p.momentum}) * (g - before);
    buffer.set(i, static_cast<Real>(m));
    update.set(i, static_cast<Real>(p.nesterov != 0 ? g + p.momentum * (m - g) : m));
  }
}

void muon(const Call& call) {
  const auto p = call.params<MuonParams>();
  const Elements update = call.in(1), state = call.in(2);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements param = call.inout(0);
  const double lr = double{p.lr} * state.get(STATE_LR_FACTOR);
  for (uint64_t i = 0; i < p.n; ++i)
    param.set(i, static_cast<Real>((1 - lr * p.weight_decay) * param.get(i) -
                                   lr * p.ratio * update.get(i)));
}

void adama_fold(const Call& call) {
  const auto p = call.params<AdamaFoldParams>();
  const Elements grad = call.in(0), table = call.in(3), state = call.in(4);
  Elements m = call.inout(1), v = call.inout(2);
  const bool skips = state.get(STATE_FOUND_INF) != 0;
  each_element(table, p, [&](uint64_t i, uint64_t at) {
    const double g = skips ? 0 : double{state.get(STATE_GRAD_FACTOR)} * grad.get(at);
    m.set(i, static_cast<Real>(double{p.decay1} * m.get(i) + (1 - double{p.beta1}) * g));
    v.set(i, static_cast<Real>(double{p.decay2} * v.get(i) + (1 - double{p.beta2}) * g * g));
  });
}

void adama(const Call& call) {
  const auto p = call.params<AdamaParams>();
  const Elements m = call.in(1), v = call.in(2), state = call.in(3);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements param = call.inout(0);
  const double lr = double{p.lr} * state.get(STATE_LR_FACTOR), t = own_updates(state, p.own);
  const double correction1 = 1 - std::pow(double{p.beta1}, t);
  const double correction2 = 1 - std::pow(double{p.beta2}, t);
  for (uint64_t i = 0; i < p.n; ++i) {
    const double root = std::sqrt(v.get(i)) / std::sqrt(correction2);
    const double x = param.get(i) * (1 - lr * p.weight_decay);
    param.set(i, static_cast<Real>(x - lr / correction1 * m.get(i) / (root + p.eps)));
  }
}

void window_fold(const Call& call) {
  const auto p = call.params<WindowFoldParams>();
  const Elements grad = call.in(1), table = call.in(2), state = call.in(3);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements sum = call.inout(0);
  each_element(table, p, [&](uint64_t i, uint64_t at) { sum.set(i, sum.get(i) + grad.get(at)); });
}

void window_add(const Call& call) {
  const auto p = call.params<WindowAddParams>();
  Elements sum = call.inout(0), rest = call.inout(1);
  const Elements grad = call.in(2);
  const bool compensated = call.variant(0) != 0;
  for (uint64_t i = 0; i < p.n; ++i) {
    const Real before = sum.get(i);
    const Real y = compensated ? grad.get(i) - rest.get(i) : grad.get(i);
    sum.set(i, before + y);
    if (compensated) rest.set(i, (sum.get(i) - before) - y);
  }
}

}  // namespace rw::reference
