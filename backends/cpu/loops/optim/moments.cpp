// Update rules with moments of the gradient (RMSprop, Adagrad, Lion, AMSGrad, Muon, AdamA), sums of
// a window's gradients, and averages of parameters.
#include "backends/cpu/loops/optim/chunks.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The states of a chunk's elements, from the first element on.
struct Moments {
  float *x, *first, *second, *third;
};

// The values that a rule needs of the call. A rule takes element i and its gradient, and changes
// its states and the parameter.
struct Rates {
  float lr, kept, decay, a, fresh_a, b, fresh_b, eps, step, root;
  bool flag;
};

template <bool centered, bool has_momentum>
inline void rmsprop(const Rates& r, const Moments& m, int64_t i, float g) {
  g += r.decay * m.x[i];
  const float squares = r.a * m.first[i] + r.fresh_a * g * g;
  m.first[i] = squares;
  float v = squares;
  if constexpr (centered) {
    const float mean = r.a * m.third[i] + r.fresh_a * g;
    m.third[i] = mean;
    v = max(0.0f, v - mean * mean);
  }
  float u = g / (sqrt(v) + r.eps);
  if constexpr (has_momentum) {
    u += r.b * m.second[i];
    m.second[i] = u;
  }
  m.x[i] -= r.lr * u;
}

inline void adagrad(const Rates& r, const Moments& m, int64_t i, float g) {
  g += r.decay * m.x[i];
  const float sum = m.first[i] + g * g;
  m.first[i] = sum;
  m.x[i] -= r.step * g / (sqrt(sum) + r.eps);
}

inline void lion(const Rates& r, const Moments& m, int64_t i, float g) {
  const float u = r.a * m.first[i] + r.fresh_a * g;
  const float sign = u > 0.0f ? 1.0f : u < 0.0f ? -1.0f : 0.0f;
  m.first[i] = r.b * m.first[i] + r.fresh_b * g;
  m.x[i] = m.x[i] * r.kept - r.lr * sign;
}

inline void amsgrad(const Rates& r, const Moments& m, int64_t i, float g) {
  const float x = m.x[i];
  g += r.flag ? 0.0f : r.decay * x;
  const float mean = r.a * m.first[i] + r.fresh_a * g;
  const float v = r.b * m.second[i] + r.fresh_b * g * g;
  const float largest = m.third[i] < v ? v : m.third[i];
  m.first[i] = mean;
  m.second[i] = v;
  m.third[i] = largest;
  m.x[i] = (r.flag ? x * r.kept : x) - r.step * mean / (sqrt(largest) * r.root + r.eps);
}

Rates rates_of(const MomentUpdateParams& p, uint32_t rule, const State& state, int64_t chunk) {
  const double lr = state.lr(p.lr);
  Rates r{to_float(lr),
          to_float(1 - lr * p.weight_decay),
          p.weight_decay,
          p.a,
          to_float(1 - double{p.a}),
          p.b,
          to_float(1 - double{p.b}),
          p.eps,
          0,
          0,
          p.flags != 0};
  if (rule == MOMENT_ADAGRAD) r.step = to_float(lr / (1 + (state.own_updates(chunk) - 1) * p.a));
  if (rule != MOMENT_AMSGRAD) return r;
  r.step = to_float(lr / state.correction(p.a, chunk));
  r.root = to_float(1 / __builtin_sqrt(state.correction(p.b, chunk)));
  return r;
}

}  // namespace

bool moment_update(const LoopCall& call) {
  const auto& p = params<MomentUpdateParams>(call);
  const State state = state_of(call, 6);
  if (state.skips()) return true;
  const uint32_t rule = call.constant[0];
  const float* gradients = operand(call, 1).as<float>();
  const float factor = state.grad_factor();
  const auto state_at = [&](size_t i, const Chunk& chunk) {
    return operand(call, i).as<float>(chunk.begin);
  };
  each_chunk(operand(call, 5), p.first, p.rows, 28, [&](const Chunk& chunk) {
    const Moments m{state_at(0, chunk), state_at(2, chunk), state_at(3, chunk), state_at(4, chunk)};
    const float* g = gradients + chunk.grad;
    const Rates rates = rates_of(p, rule, state, chunk.number);
    const auto update = [&](const auto& element) {
      each(chunk.size, [=](int64_t i) { element(rates, m, i, factor * g[i]); });
    };
    if (rule == MOMENT_RMSPROP && rates.flag && rates.b != 0)
      update([](const auto&... a) { rmsprop<true, true>(a...); });
    else if (rule == MOMENT_RMSPROP && rates.flag)
      update([](const auto&... a) { rmsprop<true, false>(a...); });
    else if (rule == MOMENT_RMSPROP && rates.b != 0)
      update([](const auto&... a) { rmsprop<false, true>(a...); });
    else if (rule == MOMENT_RMSPROP)
      update([](const auto&... a) { rmsprop<false, false>(a...); });
    else if (rule == MOMENT_ADAGRAD)
      update([](const auto&... a) { adagrad(a...); });
    else if (rule == MOMENT_LION)
      update([](const auto&... a) { lion(a...); });
    else
      update([](const auto&... a) { amsgrad(a...); });
  });
  return true;
}

bool muon_momentum(const LoopCall& call) {
  const auto& p = params<MuonParams>(call);
  const State state = state_of(call, 3);
  const Operand grad = operand(call, 0), buffer = operand(call, 1), update = operand(call, 2);
  const bool skips = state.skips(), is_nesterov = p.nesterov != 0;
  const float factor = state.grad_factor(), momentum = p.momentum,
              fresh = to_float(1 - double{p.momentum});
  each_block(p.n, 16, [&](int64_t at, int64_t count) {
    const float* g = grad.as<float>(at);
    float *m = buffer.as<float>(at), *u = update.as<float>(at);
    if (skips) {
      for (int64_t i = 0; i < count; ++i) u[i] = 0;
      return;
    }
    each(count, [=](int64_t i) {
      const float gradient = factor * g[i], now = m[i] + fresh * (gradient - m[i]);
      m[i] = now;
      u[i] = is_nesterov ? gradient + momentum * (now - gradient) : now;
    });
  });
  return true;
}

bool muon(const LoopCall& call) {
  const auto& p = params<MuonParams>(call);
  const State state = state_of(call, 2);
  if (state.skips()) return true;
  const Operand param = operand(call, 0), update = operand(call, 1);
  const double lr = state.lr(p.lr);
  const float kept = to_float(1 - lr * p.weight_decay), rate = to_float(lr * p.ratio);
  each_block(p.n, 12, [&](int64_t at, int64_t count) {
    float* x = param.as<float>(at);
    const float* u = update.as<float>(at);
    each(count, [=](int64_t i) { x[i] = kept * x[i] - rate * u[i]; });
  });
  return true;
}

bool adama_fold(const LoopCall& call) {
  const auto& p = params<AdamaFoldParams>(call);
  const State state = state_of(call, 4);
  const float* gradients = operand(call, 0).as<float>();
  float *first = operand(call, 1).as<float>(), *second = operand(call, 2).as<float>();
  const bool skips = state.skips();
  const float factor = state.grad_factor(), decay1 = p.decay1, decay2 = p.decay2,
              fresh1 = to_float(1 - double{p.beta1}), fresh2 = to_float(1 - double{p.beta2});
  each_chunk(operand(call, 3), p.first, p.rows, 20, [&](const Chunk& chunk) {
    float *m = first + chunk.begin, *v = second + chunk.begin;
    const float* g = gradients + chunk.grad;
    each(chunk.size, [=](int64_t i) {
      const float gradient = skips ? 0.0f : factor * g[i];
      m[i] = decay1 * m[i] + fresh1 * gradient;
      v[i] = decay2 * v[i] + fresh2 * gradient * gradient;
    });
  });
  return true;
}

bool adama(const LoopCall& call) {
  const auto& p = params<AdamaParams>(call);
  const State state = state_of(call, 3);
  if (state.skips()) return true;
  const Operand param = operand(call, 0), first = operand(call, 1), second = operand(call, 2);
  const double lr = state.lr(p.lr);
  const float kept = to_float(1 - lr * p.weight_decay), eps = p.eps,
              step = to_float(lr / state.correction(p.beta1, p.own)),
              root = to_float(1 / __builtin_sqrt(state.correction(p.beta2, p.own)));
  each_block(p.n, 16, [&](int64_t at, int64_t count) {
    float* x = param.as<float>(at);
    const float *m = first.as<float>(at), *v = second.as<float>(at);
    each(count, [=](int64_t i) { x[i] = x[i] * kept - step * m[i] / (sqrt(v[i]) * root + eps); });
  });
  return true;
}

bool window_fold(const LoopCall& call) {
  const auto& p = params<WindowFoldParams>(call);
  if (state_of(call, 3).skips()) return true;
  float* sums = operand(call, 0).as<float>();
  const float* gradients = operand(call, 1).as<float>();
  each_chunk(operand(call, 2), p.first, p.rows, 12, [&](const Chunk& chunk) {
    float* sum = sums + chunk.begin;
    const float* g = gradients + chunk.grad;
    each(chunk.size, [=](int64_t i) { sum[i] += g[i]; });
  });
  return true;
}

bool window_add(const LoopCall& call) {
  const auto& p = params<WindowAddParams>(call);
  const bool compensated = call.constant[0] != 0;
  const Operand sum = operand(call, 0), rest = operand(call, 1), grad = operand(call, 2);
  each_block(p.n, 12, [&](int64_t at, int64_t count) {
    Block before, lost, sums;
    const float *s = read(sum, at, count, before.at), *g = grad.as<float>(at);
    float *r = lost.at, *after = sums.at;
    if (!compensated) {
      each(count, [=](int64_t i) { after[i] = s[i] + g[i]; });
      return write(sum, at, count, after);
    }
    read(rest, at, count, r);
    each(count, [=](int64_t i) { after[i] = s[i] + (g[i] - r[i]); });
    write(sum, at, count, after);
    read(sum, at, count, after);
    each(count, [=](int64_t i) { r[i] = (after[i] - s[i]) - (g[i] - r[i]); });
    write(rest, at, count, r);
  });
  return true;
}

namespace {

// Returns the number of updates since the average began if this update changes the average, else 0.
template <class P>
uint32_t ticking(const P& p, const LoopCall& call) {
  const State state = state_of(call, 3);
  if (state.skips()) return 0;
  const float start = *operand(call, 2).as<float>();
  const auto since = static_cast<uint32_t>(static_cast<int64_t>(state.updates() - start));
  return since % p.every == 0 ? since : 0;
}

}  // namespace

bool ema(const LoopCall& call) {
  const auto& p = params<AverageParams>(call);
  const uint32_t since = ticking(p, call);
  if (since == 0) return true;
  const double ticks = since / p.every;
  double rate = p.kind == AVERAGE_EQUAL ? 1 / ticks : 1 - double{p.decay};
  if (p.kind == AVERAGE_CORRECTED) rate /= 1 - __builtin_pow(double{p.decay}, ticks);
  const float part = to_float(rate);
  const Operand average = operand(call, 0), param = operand(call, 1);
  each_block(p.n, 12, [&](int64_t at, int64_t count) {
    float* y = average.as<float>(at);
    const float* x = param.as<float>(at);
    each(count, [=](int64_t i) { y[i] += part * (x[i] - y[i]); });
  });
  return true;
}

bool lookahead(const LoopCall& call) {
  const auto& p = params<AverageParams>(call);
  if (ticking(p, call) == 0) return true;
  const float alpha = p.alpha;
  const Operand slow = operand(call, 0), param = operand(call, 1);
  each_block(p.n, 16, [&](int64_t at, int64_t count) {
    float *y = slow.as<float>(at), *x = param.as<float>(at);
    each(count, [=](int64_t i) { y[i] = x[i] = y[i] + alpha * (x[i] - y[i]); });
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
