// Losses of pairs of elements, and their derivatives.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"
#include "backends/reference/loops/elementwise.h"

namespace rw::reference {

using namespace kernels;

namespace {

// log(1 + exp(-|x|)).
double bent(double x) {
  return std::log1p(std::exp(-std::abs(x)));
}

using elementwise::sigmoid;

double sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0 * x;
}

// `a` and `b` are the kernel's parameters, and `w` is the positive class's weight.
struct PairLoss {
  uint32_t kind;
  double a, b;

  static double bce_logits(double x, double t, double w) {
    return (1 - t) * (std::max(x, 0.0) + bent(x)) + t * w * (std::max(-x, 0.0) + bent(x));
  }
  static double bce_logits_slope(double x, double t, double w) {
    return (1 - t) * sigmoid(x) - t * w * sigmoid(-x);
  }
  double share(double t) const { return a < 0 ? 1 : a * t + (1 - a) * (1 - t); }
  static double rest(double x, double t) { return sigmoid(x) * (1 - t) + sigmoid(-x) * t; }

  double value(double x, double t, double w) const {
    const double d = std::abs(x - t);
    switch (kind) {
      case LOSS_MSE:
        return d * d;
      case LOSS_L1:
        return d;
      case LOSS_SMOOTH_L1:
        return d < a ? d * d / (2 * a) : d - a / 2;
      case LOSS_HUBER:
        return d < a ? d * d / 2 : a * (d - a / 2);
      case LOSS_BCE:
        return -t * std::max(std::log(x), -100.0) - (1 - t) * std::max(std::log1p(-x), -100.0);
      case LOSS_BCE_LOGITS:
        return bce_logits(x, t, w);
      case LOSS_KL:
        return t == 0 ? 0 : t * (std::log(t) - x);
      case LOSS_KL_LOG:
        return std::exp(t) * (t - x);
      default:
        return share(t) * bce_logits(x, t, 1) * std::pow(rest(x, t), b);
    }
  }

  double slope_x(double x, double t, double w) const {
    const double d = x - t;
    switch (kind) {
      case LOSS_MSE:
        return 2 * d;
      case LOSS_L1:
        return sign(d);
      case LOSS_SMOOTH_L1:
        return std::abs(d) < a ? d / a : sign(d);
      case LOSS_HUBER:
        return std::abs(d) < a ? d : a * sign(d);
      case LOSS_BCE:
        return d / std::max(x * (1 - x), 1e-12);
      case LOSS_BCE_LOGITS:
        return bce_logits_slope(x, t, w);
      case LOSS_KL:
        return -t;
      case LOSS_KL_LOG:
        return -std::exp(t);
      default: {
        const double q = std::max(rest(x, t), 1e-30), outer = bce_logits_slope(x, t, 1);
        if (b == 0) return share(t) * outer;
        return share(t) * (outer * std::pow(q, b) + bce_logits(x, t, 1) * b * std::pow(q, b - 1) *
                                                        (1 - 2 * t) * sigmoid(x) * sigmoid(-x));
      }
    }
  }

  double slope_t(double x, double t, double w) const {
    switch (kind) {
      case LOSS_BCE:
        return std::max(std::log1p(-x), -100.0) - std::max(std::log(x), -100.0);
      case LOSS_BCE_LOGITS:
        return w * std::max(-x, 0.0) - std::max(x, 0.0) + (w - 1) * bent(x);
      case LOSS_KL:
        return t > 0 ? std::log(t) + 1 - x : 0;
      case LOSS_KL_LOG:
        return std::exp(t) * (t - x + 1);
      case LOSS_FOCAL: {
        const double q = std::max(rest(x, t), 1e-30), l = bce_logits(x, t, 1),
                     power = std::pow(q, b);
        double slope = -share(t) * x * power;
        if (a >= 0) slope += (2 * a - 1) * l * power;
        if (b != 0) slope += share(t) * l * b * std::pow(q, b - 1) * std::tanh(-0.5 * x);
        return slope;
      }
      default:
        return -slope_x(x, t, w);
    }
  }
};

}  // namespace

void pair_loss(const Call& call) {
  const auto p = call.params<PairLossParams>();
  const PairLoss loss{call.variant(0), p.a, p.b};
  const Elements x = call.in(0), target = call.in(1), weight = call.in(2);
  Elements y = call.out(3);
  for (uint64_t i = 0; i < p.n; ++i) {
    const double w = call.variant(1) != 0 ? weight.get(i % p.period) : 1;
    y.set(i, static_cast<Real>(loss.value(x.get(i), target.get(i), w)));
  }
}

void pair_loss_grad(const Call& call) {
  const auto p = call.params<PairLossParams>();
  const PairLoss loss{call.variant(0), p.a, p.b};
  const Elements x = call.in(0), target = call.in(1), weight = call.in(2), dy = call.in(3);
  Elements dx = call.out(4);
  for (uint64_t i = 0; i < p.n; ++i) {
    const double w = call.variant(1) != 0 ? weight.get(i % p.period) : 1;
    const double slope = call.variant(2) == 0 ? loss.slope_x(x.get(i), target.get(i), w)
                                              : loss.slope_t(x.get(i), target.get(i), w);
    dx.set(i, static_cast<Real>(dy.get(p.dy_one != 0 ? 0 : i) * slope));
  }
}

}  // namespace rw::reference
