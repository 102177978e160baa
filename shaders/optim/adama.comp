//! buffers: param:f32:read_write m:f32:read v:f32:read state:f32:read
//! params: AdamaParams
//! local: 64
#include "optim/moments.glsl"
#include "common/flat.glsl"
#include "optim/adam_step.glsl"

void step4(Rates rates, inout vec4 x, vec4 m, vec4 v) {
  x *= 1.0 - rates.decay;
  x -= adam_step(rates, m, v);
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n || load_state(STATE_FOUND_INF) != 0.0) return;
  Rates rates = load_rates(p.own);
  vec4 x_lo, x_hi, m_lo, m_hi, v_lo, v_hi;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[2])) {
    load8_param(i, x_lo, x_hi);
    load8_m(i, m_lo, m_hi);
    load8_v(i, v_lo, v_hi);
    step4(rates, x_lo, m_lo, v_lo);
    step4(rates, x_hi, m_hi, v_hi);
    store8_param(i, x_lo, x_hi);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) {
      x_lo.x = load_param(k);
      step4(rates, x_lo, vec4(load_m(k)), vec4(load_v(k)));
      store_param(k, x_lo.x);
    }
  }
}
