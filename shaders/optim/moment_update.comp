//! buffers: param:f32:read_write grad:f32:read first:f32:read_write second:f32:read_write third:f32:read_write table:i32:read state:f32:read
//! params: MomentUpdateParams
//! local: 64
#include "optim/moments.glsl"
#include "common/chunks.glsl"
#include "common/counts.glsl"
#include "common/flat.glsl"
layout(constant_id = 0) const uint RULE = 0;  //! 0 1 2 3

// The states of 4 elements.
struct Moments {
  vec4 first, second, third;
};

// The values that all elements of an update share.
struct Rates {
  float grad_factor, lr, decay;
  float step;          // lr, divided by the bias correction or slowed down
  float inverse_root;  // amsgrad: 1 / sqrt(1 - b^t)
};

bool has_second() { return RULE == MOMENT_AMSGRAD || (RULE == MOMENT_RMSPROP && p.b != 0.0); }
bool has_third() { return RULE == MOMENT_AMSGRAD || (RULE == MOMENT_RMSPROP && p.flags != 0); }

// Returns the rates of the parameter that has this chunk.
Rates load_rates(uint chunk) {
  float lr = p.lr * load_state(STATE_LR_FACTOR), step = lr, inverse_root = 1.0;
  uint t = own_updates(chunk);
  if (RULE == MOMENT_ADAGRAD) step = lr / (1.0 + float(t - 1) * p.a);
  if (RULE == MOMENT_AMSGRAD) {
    step = lr / one_minus_power(p.a, t);
    inverse_root = 1.0 / sqrt(one_minus_power(p.b, t));
  }
  return Rates(load_state(STATE_GRAD_FACTOR), lr, lr * p.weight_decay, step, inverse_root);
}

vec4 rmsprop(vec4 g, inout Moments m) {
  m.first = p.a * m.first + (1.0 - p.a) * g * g;
  vec4 v = m.first;
  if (p.flags != 0) {
    m.third = p.a * m.third + (1.0 - p.a) * g;
    v = max(vec4(0.0), v - m.third * m.third);
  }
  vec4 u = g / (sqrt(v) + p.eps);
  if (p.b == 0.0) return u;
  m.second = p.b * m.second + u;
  return m.second;
}

vec4 adagrad(vec4 g, inout Moments m) {
  m.first += g * g;
  return g / (sqrt(m.first) + p.eps);
}

vec4 lion(vec4 g, inout Moments m) {
  vec4 u = sign(p.a * m.first + (1.0 - p.a) * g);
  m.first = p.b * m.first + (1.0 - p.b) * g;
  return u;
}

vec4 amsgrad(Rates rates, vec4 g, inout Moments m) {
  m.first = p.a * m.first + (1.0 - p.a) * g;
  m.second = p.b * m.second + (1.0 - p.b) * g * g;
  m.third = max(m.third, m.second);
  return m.first / (sqrt(m.third) * rates.inverse_root + p.eps);
}

void step4(Rates rates, inout vec4 x, vec4 g, inout Moments m) {
  g *= rates.grad_factor;
  if (RULE == MOMENT_LION || (RULE == MOMENT_AMSGRAD && p.flags != 0)) {
    x *= 1.0 - rates.decay;
  } else {
    g += p.weight_decay * x;
  }
  vec4 u;
  switch (RULE) {
    case MOMENT_RMSPROP: u = rmsprop(g, m); break;
    case MOMENT_ADAGRAD: u = adagrad(g, m); break;
    case MOMENT_LION: u = lion(g, m); break;
    default: u = amsgrad(rates, g, m);
  }
  x -= rates.step * u;
}

void main() {
  uint t = thread_id(), row = t >> p.shift;
  if (row >= p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  Chunk chunk = load_chunk(p.first + row);
  uint at = (t & ((1u << p.shift) - 1u)) * REWIND_FLAT;
  if (at >= chunk.size) return;
  uint i = chunk.begin + at, g = chunk.grad + at;
  Rates rates = load_rates(chunk.number);
  vec4 x_lo, x_hi, g_lo, g_hi;
  Moments lo = Moments(vec4(0.0), vec4(0.0), vec4(0.0)), hi = lo;
  uint offsets = p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3] | p.offset[4];
  if (is_whole(at, chunk.size, i | g | offsets)) {
    load8_param(i, x_lo, x_hi);
    load8_grad(g, g_lo, g_hi);
    load8_first(i, lo.first, hi.first);
    if (has_second()) load8_second(i, lo.second, hi.second);
    if (has_third()) load8_third(i, lo.third, hi.third);
    step4(rates, x_lo, g_lo, lo);
    step4(rates, x_hi, g_hi, hi);
    store8_param(i, x_lo, x_hi);
    store8_first(i, lo.first, hi.first);
    if (has_second()) store8_second(i, lo.second, hi.second);
    if (has_third()) store8_third(i, lo.third, hi.third);
  } else {
    uint count = flat_end(at, chunk.size) - at;
    for (uint k = 0; k < count; ++k) {
      x_lo.x = load_param(i + k);
      lo.first.x = load_first(i + k);
      if (has_second()) lo.second.x = load_second(i + k);
      if (has_third()) lo.third.x = load_third(i + k);
      step4(rates, x_lo, vec4(load_grad(g + k)), lo);
      store_param(i + k, x_lo.x);
      store_first(i + k, lo.first.x);
      if (has_second()) store_second(i + k, lo.second.x);
      if (has_third()) store_third(i + k, lo.third.x);
    }
  }
}
