//! buffers: grad:f32:read buffer:f32:read_write update:f32:write state:f32:read
//! params: MuonParams
//! local: 64
#include "common/flat.glsl"

vec4 step4(vec4 g, inout vec4 buf) {
  g *= load_state(STATE_GRAD_FACTOR);
  buf += (1.0 - p.momentum) * (g - buf);
  return p.nesterov != 0 ? g + p.momentum * (buf - g) : buf;
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  bool skips = load_state(STATE_FOUND_INF) != 0.0;
  vec4 g_lo, g_hi, lo, hi;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[2])) {
    if (skips) {
      store8_update(i, vec4(0.0), vec4(0.0));
      return;
    }
    load8_grad(i, g_lo, g_hi);
    load8_buffer(i, lo, hi);
    vec4 u_lo = step4(g_lo, lo), u_hi = step4(g_hi, hi);
    store8_buffer(i, lo, hi);
    store8_update(i, u_lo, u_hi);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) {
      float u = 0.0;
      if (!skips) {
        lo = vec4(load_buffer(k));
        u = step4(vec4(load_grad(k)), lo).x;
        store_buffer(k, lo.x);
      }
      store_update(k, u);
    }
  }
}
