//! buffers: grad:f32:read m:f32:read_write v:f32:read_write table:i32:read state:f32:read
//! params: AdamaFoldParams
//! local: 64
#include "common/chunks.glsl"
#include "common/flat.glsl"

void fold(float factor, vec4 g, inout vec4 m, inout vec4 v) {
  m *= p.decay1;
  v *= p.decay2;
  if (load_state(STATE_FOUND_INF) != 0.0) return;
  g *= factor;
  m += (1.0 - p.beta1) * g;
  v += (1.0 - p.beta2) * g * g;
}

void main() {
  uint t = thread_id(), row = t >> p.shift;
  if (row >= p.rows) return;
  Chunk chunk = load_chunk(p.first + row);
  uint at = (t & ((1u << p.shift) - 1u)) * REWIND_FLAT;
  if (at >= chunk.size) return;
  uint i = chunk.begin + at, g = chunk.grad + at;
  float factor = load_state(STATE_GRAD_FACTOR);
  vec4 g_lo, g_hi, m_lo, m_hi, v_lo, v_hi;
  if (is_whole(at, chunk.size, i | g | p.offset[0] | p.offset[1] | p.offset[2])) {
    load8_grad(g, g_lo, g_hi);
    load8_m(i, m_lo, m_hi);
    load8_v(i, v_lo, v_hi);
    fold(factor, g_lo, m_lo, v_lo);
    fold(factor, g_hi, m_hi, v_hi);
    store8_m(i, m_lo, m_hi);
    store8_v(i, v_lo, v_hi);
  } else {
    uint count = flat_end(at, chunk.size) - at;
    for (uint k = 0; k < count; ++k) {
      m_lo.x = load_m(i + k);
      v_lo.x = load_v(i + k);
      fold(factor, vec4(load_grad(g + k)), m_lo, v_lo);
      store_m(i + k, m_lo.x);
      store_v(i + k, v_lo.x);
    }
  }
}
