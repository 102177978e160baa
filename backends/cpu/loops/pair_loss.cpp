// Losses of pairs of elements, and their derivatives.
#include "backends/cpu/loops/functions.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

inline float sign(float x) {
  return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f * x;
}
inline float bounded_log(float x) {
  return max(log(x), -100.0f);
}
inline float bounded_log1p(float x) {
  return max(log1p(x), -100.0f);
}

// `w` is the positive class's weight. Neither sum has terms that cancel if t is 0 or 1.
inline float bce_logits(float x, float t, float w) {
  const float rest = log1p(exp(-abs(x)));
  return (1 - t) * (max(x, 0.0f) + rest) + t * w * (max(-x, 0.0f) + rest);
}
inline float bce_logits_slope(float x, float t, float w) {
  return (1 - t) * sigmoid(x) - t * w * sigmoid(-x);
}

// `a` and `b` are the kernel's parameters.
struct Focal {
  float a, b;

  float share(float t) const { return a < 0 ? 1.0f : a * t + (1 - a) * (1 - t); }
  static float rest(float x, float t) { return sigmoid(x) * (1 - t) + sigmoid(-x) * t; }

  float value(float x, float t) const {
    return share(t) * bce_logits(x, t, 1) * pow(rest(x, t), b);
  }
  float slope_x(float x, float t) const {
    const float q = max(rest(x, t), 1e-30f), outer = bce_logits_slope(x, t, 1) * pow(q, b);
    const float inner = bce_logits(x, t, 1) * b * pow(q, b - 1) * (1 - 2 * t) * sigmoid_grad(x);
    return share(t) * (b == 0 ? outer : outer + inner);
  }
  float slope_t(float x, float t) const {
    const float q = max(rest(x, t), 1e-30f), l = bce_logits(x, t, 1), power = pow(q, b);
    const float of_share = a >= 0 ? (2 * a - 1) * l * power : 0.0f;
    const float of_rest = share(t) * l * b * pow(q, b - 1) * tanh(-0.5f * x);
    return of_share - share(t) * x * power + (b != 0 ? of_rest : 0.0f);
  }
};

// Calls `run` with the function of x, t and w that belongs to `kind`.
template <class Run>
bool with_value(uint32_t kind, float a, float b, const Run& run) {
  const Focal focal{a, b};
  switch (kind) {
    case LOSS_MSE:
      return run([](float x, float t, float) { return (x - t) * (x - t); });
    case LOSS_L1:
      return run([](float x, float t, float) { return abs(x - t); });
    case LOSS_SMOOTH_L1:
      return run([=](float x, float t, float) {
        const float d = abs(x - t), near = d * d / (2 * a);
        return d < a ? near : d - a / 2;
      });
    case LOSS_HUBER:
      return run([=](float x, float t, float) {
        const float d = abs(x - t);
        return d < a ? d * d / 2 : a * (d - a / 2);
      });
    case LOSS_BCE:
      return run([](float x, float t, float) {
        return -t * bounded_log(x) - (1 - t) * bounded_log1p(-x);
      });
    case LOSS_BCE_LOGITS:
      return run([](float x, float t, float w) { return bce_logits(x, t, w); });
    case LOSS_KL:
      return run([](float x, float t, float) {
        const float value = t * (log(t) - x);
        return t == 0.0f ? 0.0f : value;
      });
    case LOSS_KL_LOG:
      return run([](float x, float t, float) { return exp(t) * (t - x); });
    default:
      return run([=](float x, float t, float) { return focal.value(x, t); });
  }
}

template <class Run>
bool with_slope_x(uint32_t kind, float a, float b, const Run& run) {
  const Focal focal{a, b};
  switch (kind) {
    case LOSS_MSE:
      return run([](float x, float t, float) { return 2 * (x - t); });
    case LOSS_L1:
      return run([](float x, float t, float) { return sign(x - t); });
    case LOSS_SMOOTH_L1:
      return run([=](float x, float t, float) {
        const float d = x - t, near = d / a;
        return abs(d) < a ? near : sign(d);
      });
    case LOSS_HUBER:
      return run([=](float x, float t, float) {
        const float d = x - t;
        return abs(d) < a ? d : a * sign(d);
      });
    case LOSS_BCE:
      return run([](float x, float t, float) { return (x - t) / max(x * (1 - x), 1e-12f); });
    case LOSS_BCE_LOGITS:
      return run([](float x, float t, float w) { return bce_logits_slope(x, t, w); });
    case LOSS_KL:
      return run([](float, float t, float) { return -t; });
    case LOSS_KL_LOG:
      return run([](float, float t, float) { return -exp(t); });
    default:
      return run([=](float x, float t, float) { return focal.slope_x(x, t); });
  }
}

template <class Run>
bool with_slope_t(uint32_t kind, float a, float b, const Run& run) {
  const Focal focal{a, b};
  switch (kind) {
    case LOSS_BCE:
      return run([](float x, float, float) { return bounded_log1p(-x) - bounded_log(x); });
    case LOSS_BCE_LOGITS:
      return run([](float x, float, float w) {
        return (w * max(-x, 0.0f) - max(x, 0.0f)) + (w - 1) * log1p(exp(-abs(x)));
      });
    case LOSS_KL:
      return run([](float x, float t, float) {
        const float slope = log(t) + 1 - x;
        return t > 0.0f ? slope : 0.0f;
      });
    case LOSS_KL_LOG:
      return run([](float x, float t, float) { return exp(t) * (t - x + 1); });
    case LOSS_FOCAL:
      return run([=](float x, float t, float) { return focal.slope_t(x, t); });
    default:
      return with_slope_x(kind, a, b, [&](const auto& slope) {
        return run([=](float x, float t, float w) { return -slope(x, t, w); });
      });
  }
}

const float* repeated_pair(float value, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = value;
  return to;
}

// Returns elements [at, at + count) of a binding that repeats itself, or ones if there is none.
const float* weights(bool is_weighted, const Operand& weight, int64_t period, int64_t at,
                     int64_t count, float* to) {
  if (!is_weighted) return repeated_pair(1, count, to);
  for (int64_t done = 0; done < count;) {
    const int64_t from = (at + done) % period, n = least(count - done, period - from);
    const float* w = read(weight, from, n, to + done);
    for (int64_t i = 0; i < n; ++i) to[done + i] = w[i];
    done += n;
  }
  return to;
}

}  // namespace

bool pair_loss(const LoopCall& call) {
  const auto& p = params<PairLossParams>(call);
  const Operand x = operand(call, 0), target = operand(call, 1), weight = operand(call, 2),
                y = operand(call, 3);
  return with_value(call.constant[0], p.a, p.b, [&](const auto& value) {
    each_block(p.n, x.width + target.width + y.width, [&](int64_t at, int64_t count) {
      Block values, targets, factors, result;
      const float *v = read(x, at, count, values.at), *t = read(target, at, count, targets.at),
                  *w = weights(call.constant[1] != 0, weight, p.period, at, count, factors.at);
      float* const to = place(y, at, result.at);
      each(count, [=](int64_t i) { to[i] = value(v[i], t[i], w[i]); });
      write(y, at, count, to);
    });
    return true;
  });
}

bool pair_loss_grad(const LoopCall& call) {
  const auto& p = params<PairLossParams>(call);
  const Operand x = operand(call, 0), target = operand(call, 1), weight = operand(call, 2),
                dy = operand(call, 3), dx = operand(call, 4);
  const auto run = [&](const auto& slope) {
    each_block(p.n, x.width + target.width + dy.width + dx.width, [&](int64_t at, int64_t count) {
      Block values, targets, factors, grads, result;
      const float *v = read(x, at, count, values.at), *t = read(target, at, count, targets.at),
                  *w = weights(call.constant[1] != 0, weight, p.period, at, count, factors.at);
      const float* g = p.dy_one != 0 ? repeated_pair(*read(dy, 0, 1, grads.at), count, grads.at)
                                     : read(dy, at, count, grads.at);
      float* const to = place(dx, at, result.at);
      each(count, [=](int64_t i) { to[i] = g[i] * slope(v[i], t[i], w[i]); });
      write(dx, at, count, to);
    });
    return true;
  };
  return call.constant[2] == 0 ? with_slope_x(call.constant[0], p.a, p.b, run)
                               : with_slope_t(call.constant[0], p.a, p.b, run);
}

}  // namespace rw::cpu::REWIND_LEVEL
