// Statistics of gradients, SGD and Adam. Everything is f32 except the codes of 8-bit Adam.
#include "backends/cpu/loops/optim/chunks.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The sum of squares of x * scale.
float sum_of_squares(const float* x, int64_t count, float scale) {
  Vec squares{};
  for (int64_t at = 0; at < count; at += block)
    squares += fold_squares(x + at, least(block, count - at), scale);
  return fold_lanes<Sum>(squares);
}

}  // namespace

bool grad_stats(const LoopCall& call) {
  const auto& p = params<GradStatsParams>(call);
  const float* gradients = operand(call, 0).as<float>();
  float* partial = operand(call, 2).as<float>();
  each_chunk(operand(call, 1), p.first, p.rows, 4, [&](const Chunk& chunk) {
    const float* g = gradients + chunk.grad;
    const uint32_t largest = largest_bits(g, chunk.size);
    const bool finite = largest < 0x7f800000u;
    const float scale = finite && largest >= SQUARES_DOWN_BITS ? SQUARES_DOWN
                        : largest < SQUARES_UP_BITS            ? SQUARES_UP
                                                               : 1.0f;
    partial[chunk.number] = sum_of_squares(g, chunk.size, scale);
    partial[p.chunks + chunk.number] = finite ? 0.0f : 1.0f;
    partial[2 * int64_t{p.chunks} + chunk.number] = chunk.size == 0 ? 0.0f : scale;
  });
  return true;
}

bool sgd(const LoopCall& call) {
  const auto& p = params<SgdParams>(call);
  const State state = state_of(call, 4);
  if (state.skips()) return true;
  float* params = operand(call, 0).as<float>();
  const float* gradients = operand(call, 1).as<float>();
  float* buffers = operand(call, 2).as<float>();
  const float lr = to_float(state.lr(p.lr)), momentum = p.momentum, decay = p.weight_decay;
  const float factor = p.maximize != 0 ? -state.grad_factor() : state.grad_factor();
  const bool is_nesterov = p.nesterov != 0;
  each_chunk(operand(call, 3), p.first, p.rows, momentum != 0 ? 20 : 12, [&](const Chunk& chunk) {
    float* x = params + chunk.begin;
    const float* g = gradients + chunk.grad;
    float* buffer = buffers + chunk.begin;
    if (momentum == 0) {
      each(chunk.size, [=](int64_t i) { x[i] -= lr * (factor * g[i] + decay * x[i]); });
      return;
    }
    const bool is_first = state.own_updates(chunk.number) == 1;
    const float kept = is_first ? 0.0f : momentum, fresh = is_first ? 1.0f : 1.0f - p.dampening;
    each(chunk.size, [=](int64_t i) {
      const float gradient = factor * g[i] + decay * x[i];
      const float before = is_first ? 0.0f : buffer[i];  // uninitialized memory may hold NaN
      const float now = kept * before + fresh * gradient;
      buffer[i] = now;
      x[i] -= lr * (is_nesterov ? gradient + momentum * now : now);
    });
  });
  return true;
}

namespace {

// Adam's update of single elements, by the parameters of its kernels.
struct AdamRates {
  float factor, kept, decay, beta1, fresh1, beta2, fresh2, step, root, eps;

  template <class P>
  AdamRates(const P& p, const State& state, int64_t chunk)
      : factor(state.grad_factor()),
        kept(p.decoupled != 0 ? to_float(1 - state.lr(p.lr) * p.weight_decay) : 1.0f),
        decay(p.decoupled != 0 ? 0.0f : p.weight_decay),
        beta1(p.beta1),
        fresh1(to_float(1 - double{p.beta1})),
        beta2(p.beta2),
        fresh2(to_float(1 - double{p.beta2})),
        step(to_float(state.lr(p.lr) / state.correction(p.beta1, chunk))),
        root(to_float(1 / __builtin_sqrt(state.correction(p.beta2, chunk)))),
        eps(p.eps) {}

  void operator()(float& x, float gradient, float& m, float& v) const {
    const float g = factor * gradient + decay * x;
    m = beta1 * m + fresh1 * g;
    v = beta2 * v + fresh2 * g * g;
    x = kept * x - step * m / (sqrt(v) * root + eps);
  }
};

}  // namespace

bool adam(const LoopCall& call) {
  const auto& p = params<AdamParams>(call);
  const State state = state_of(call, 5);
  if (state.skips()) return true;
  float* params = operand(call, 0).as<float>();
  const float* gradients = operand(call, 1).as<float>();
  float *first = operand(call, 2).as<float>(), *second = operand(call, 3).as<float>();
  each_chunk(operand(call, 4), p.first, p.rows, 28, [&](const Chunk& chunk) {
    float *x = params + chunk.begin, *m = first + chunk.begin, *v = second + chunk.begin;
    const float* g = gradients + chunk.grad;
    const AdamRates rates(p, state, chunk.number);
    each(chunk.size, [=](int64_t i) {
      float x1 = x[i], m1 = m[i], v1 = v[i];
      rates(x1, g[i], m1, v1);
      x[i] = x1;
      m[i] = m1;
      v[i] = v1;
    });
  });
  return true;
}

namespace {

constexpr int64_t codes = 256;

// Counts the bounds, times `scale`, that are below x: by bisection, for all elements side by side.
void encode(const float* x, int64_t count, const float* bounds, float scale, int32_t* code) {
  alignas(64) float scaled[codes];
  for (int64_t i = 0; i < codes; ++i) scaled[i] = bounds[i] * scale;
  for (int64_t i = 0; i < count; ++i) code[i] = 0;
#pragma GCC unroll 1
  for (int32_t half = codes / 2; half > 0; half /= 2) {
    each(count, [=](int64_t i) { code[i] += x[i] > scaled[code[i] + half - 1] ? half : 0; });
  }
}

}  // namespace

bool adam_8bit(const LoopCall& call) {
  const auto& p = params<Adam8bitParams>(call);
  const State state = state_of(call, 7);
  if (state.skips()) return true;
  const AdamRates rates(p, state, p.own);
  float* params = operand(call, 0).as<float>();
  const float *gradients = operand(call, 1).as<float>(), *maps = operand(call, 6).as<float>();
  uint8_t *first = operand(call, 2).as<uint8_t>(), *second = operand(call, 3).as<uint8_t>();
  float *scales_m = operand(call, 4).as<float>(), *scales_v = operand(call, 5).as<float>();
  constexpr int64_t size = ADAM_8BIT_BLOCK;
  parallel_for(divide_up(p.n, size), 14 * int64_t{p.n}, [&](int64_t i) {
    const int64_t begin = i * size, count = least(size, p.n - begin);
    float* x = params + begin;
    uint8_t *code_m = first + begin, *code_v = second + begin;
    const float scale_m = scales_m[i], scale_v = scales_v[i];
    alignas(64) float new_m[size], new_v[size], sizes[size];
    float *m = new_m, *v = new_v, *most = sizes;
    const float* g = gradients + begin;
    each(count, [=](int64_t k) {
      float x1 = x[k], m1 = maps[code_m[k]] * scale_m, v1 = maps[2 * codes + code_v[k]] * scale_v;
      rates(x1, g[k], m1, v1);
      x[k] = x1;
      m[k] = m1;
      v[k] = v1 < 0x1.fffffep127f ? v1 : 0x1.fffffep127f;
      most[k] = abs(m1);
    });
    const float most_m = folded<Largest>(most, count), most_v = folded<Largest>(v, count);
    int32_t code[size];
    encode(m, count, maps + codes, most_m, code);
    for (int64_t k = 0; k < count; ++k) code_m[k] = static_cast<uint8_t>(code[k]);
    encode(v, count, maps + 3 * codes, most_v, code);
    for (int64_t k = 0; k < count; ++k)
      code_v[k] = static_cast<uint8_t>(code[k] == 0 && v[k] > 0.0f ? 1 : code[k]);
    scales_m[i] = most_m;
    scales_v[i] = most_v;
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
