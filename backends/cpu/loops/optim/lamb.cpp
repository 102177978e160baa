// LAMB: the moments and norms of its updates, and the step by each parameter's trust ratio.
#include "backends/cpu/loops/optim/chunks.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Returns the update of an element before the trust ratio.
struct Direction {
  float mean, root, eps, decay;

  Direction(const LambParams& p, const State& state, int64_t chunk)
      : mean(to_float(1 / state.correction(p.beta1, chunk))),
        root(to_float(1 / __builtin_sqrt(state.correction(p.beta2, chunk)))),
        eps(p.eps),
        decay(p.weight_decay) {}

  float operator()(float x, float m, float v) const {
    return mean * m / (root * sqrt(v) + eps) + decay * x;
  }
};

}  // namespace

bool lamb_norms(const LoopCall& call) {
  const auto& p = params<LambParams>(call);
  const State state = state_of(call, 5);
  if (state.skips()) return true;
  const float *values = operand(call, 0).as<float>(), *gradients = operand(call, 1).as<float>();
  float *first = operand(call, 2).as<float>(), *second = operand(call, 3).as<float>();
  float* partial = operand(call, 6).as<float>();
  const float factor = state.grad_factor(), beta1 = p.beta1, beta2 = p.beta2,
              fresh1 = to_float(1 - double{beta1}), fresh2 = to_float(1 - double{beta2});
  each_chunk(operand(call, 4), p.first, p.rows, 24, [&](const Chunk& chunk) {
    const Direction direction(p, state, chunk.number);
    Squares squares_x, squares_u;
    for (int64_t at = 0; at < chunk.size; at += block) {
      const int64_t count = least(block, chunk.size - at), k = chunk.begin + at;
      const float *x = values + k, *g = gradients + chunk.grad + at;
      float *m = first + k, *v = second + k;
      Block updates;
      float* u = updates.at;
      each(count, [=](int64_t i) {
        const float gradient = factor * g[i];
        const float m1 = beta1 * m[i] + fresh1 * gradient;
        const float v1 = beta2 * v[i] + fresh2 * gradient * gradient;
        m[i] = m1;
        v[i] = v1;
        u[i] = direction(x[i], m1, v1);
      });
      squares_x.add(x, count);
      squares_u.add(u, count);
    }
    const int64_t number = chunk.number - p.number;
    partial[number] = squares_x.norm();
    partial[p.chunks + number] = squares_u.norm();
  });
  return true;
}

bool lamb_ratio(const LoopCall& call) {
  const auto& p = params<LambParams>(call);
  if (state_of(call, 2).skips()) return true;
  const float* partial = operand(call, 0).as<float>();
  const int32_t* first = operand(call, 1).as<int32_t>();
  float* ratio = operand(call, 3).as<float>();
  for (int64_t i = 0; i < p.parameters; ++i) {
    double squares_x = 0, squares_u = 0;
    for (int64_t chunk = first[i]; chunk < first[i + 1]; ++chunk) {
      const double x = partial[chunk], u = partial[p.chunks + chunk];
      squares_x += x * x;
      squares_u += u * u;
    }
    const bool adapts = p.adapt != 0 && squares_x > 0 && squares_u > 0;
    const float value = adapts ? to_float(__builtin_sqrt(squares_x / squares_u)) : 1.0f;
    for (int64_t chunk = first[i]; chunk < first[i + 1]; ++chunk) ratio[chunk] = value;
  }
  return true;
}

bool lamb(const LoopCall& call) {
  const auto& p = params<LambParams>(call);
  const State state = state_of(call, 5);
  if (state.skips()) return true;
  float* values = operand(call, 0).as<float>();
  const float *first = operand(call, 1).as<float>(), *second = operand(call, 2).as<float>();
  const float* ratio = operand(call, 4).as<float>();
  const double lr = state.lr(p.lr);
  each_chunk(operand(call, 3), p.first, p.rows, 16, [&](const Chunk& chunk) {
    const Direction direction(p, state, chunk.number);
    const float rate = to_float(lr * ratio[chunk.number - p.number]);
    float* x = values + chunk.begin;
    const float *m = first + chunk.begin, *v = second + chunk.begin;
    each(chunk.size, [=](int64_t i) { x[i] -= rate * direction(x[i], m[i], v[i]); });
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
