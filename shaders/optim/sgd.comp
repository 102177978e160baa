//! buffers: param:f32:read_write grad:f32:read momentum:f32:read_write table:i32:read state:f32:read
//! params: SgdParams
//! local: 64
#include "common/chunks.glsl"
#include "common/counts.glsl"
#include "common/flat.glsl"

// Takes one step of 4 elements: x is the parameter, buf its momentum.
void step4(bool is_first, inout vec4 x, vec4 g, inout vec4 buf) {
  g = g * (p.maximize != 0 ? -1.0 : 1.0) * load_state(STATE_GRAD_FACTOR) + p.weight_decay * x;
  if (p.momentum != 0.0) {
    buf = is_first ? g : p.momentum * buf + (1.0 - p.dampening) * g;
    g = p.nesterov != 0 ? g + p.momentum * buf : buf;
  }
  x -= p.lr * load_state(STATE_LR_FACTOR) * g;
}

void main() {
  uint t = thread_id(), row = t >> p.shift;
  if (row >= p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  Chunk chunk = load_chunk(p.first + row);
  uint at = (t & ((1u << p.shift) - 1u)) * REWIND_FLAT;
  if (at >= chunk.size) return;
  uint i = chunk.begin + at, g = chunk.grad + at;
  bool is_first = own_updates(chunk.number) == 1;
  vec4 x_lo, x_hi, g_lo, g_hi, buf_lo = vec4(0.0), buf_hi = buf_lo;
  if (is_whole(at, chunk.size, i | g | p.offset[0] | p.offset[1] | p.offset[2])) {
    load8_param(i, x_lo, x_hi);
    load8_grad(g, g_lo, g_hi);
    if (p.momentum != 0.0) load8_momentum(i, buf_lo, buf_hi);
    step4(is_first, x_lo, g_lo, buf_lo);
    step4(is_first, x_hi, g_hi, buf_hi);
    if (p.momentum != 0.0) store8_momentum(i, buf_lo, buf_hi);
    store8_param(i, x_lo, x_hi);
  } else {
    uint count = flat_end(at, chunk.size) - at;
    for (uint k = 0; k < count; ++k) {
      x_lo.x = load_param(i + k);
      if (p.momentum != 0.0) buf_lo.x = load_momentum(i + k);
      step4(is_first, x_lo, vec4(load_grad(g + k)), buf_lo);
      if (p.momentum != 0.0) store_momentum(i + k, buf_lo.x);
      store_param(i + k, x_lo.x);
    }
  }
}
