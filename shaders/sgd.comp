//! buffers: param:f32:read_write grad:T:read momentum:f32:read_write state:f32:read
//! types: T = f32 f16
//! params: SgdParams
//! local: 64
#include "flat.glsl"

// One step of 4 elements: x the parameter, buf its momentum.
void step4(inout vec4 x, vec4 g, inout vec4 buf) {
  g = g * (p.maximize != 0 ? -1.0 : 1.0) * load_state(STATE_GRAD_FACTOR) + p.weight_decay * x;
  if (p.momentum != 0.0) {
    bool is_first = load_state(STATE_UPDATES) == 1.0;
    buf = is_first ? g : p.momentum * buf + (1.0 - p.dampening) * g;
    g = p.nesterov != 0 ? g + p.momentum * buf : buf;
  }
  x -= p.lr * load_state(STATE_LR_FACTOR) * g;
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n || load_state(STATE_FOUND_INF) != 0.0) return;
  vec4 x_lo, x_hi, g_lo, g_hi, buf_lo = vec4(0.0), buf_hi = buf_lo;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[2])) {
    load8_param(i, x_lo, x_hi);
    load8_grad(i, g_lo, g_hi);
    if (p.momentum != 0.0) load8_momentum(i, buf_lo, buf_hi);
    step4(x_lo, g_lo, buf_lo);
    step4(x_hi, g_hi, buf_hi);
    if (p.momentum != 0.0) store8_momentum(i, buf_lo, buf_hi);
    store8_param(i, x_lo, x_hi);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) {
      x_lo.x = load_param(k);
      if (p.momentum != 0.0) buf_lo.x = load_momentum(k);
      step4(x_lo, vec4(load_grad(k)), buf_lo);
      if (p.momentum != 0.0) store_momentum(k, buf_lo.x);
      store_param(k, x_lo.x);
    }
  }
}
