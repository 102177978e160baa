//! buffers: param:f32:read_write grad:f32:read m:f32:read_write v:f32:read_write table:i32:read state:f32:read
//! params: AdamParams
//! local: 64
#include "optim/adam_update.glsl"
#include "common/chunks.glsl"
#include "common/flat.glsl"

void main() {
  uint t = thread_id(), row = t >> p.shift;
  if (row >= p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  Chunk chunk = load_chunk(p.first + row);
  uint at = (t & ((1u << p.shift) - 1u)) * REWIND_FLAT;
  if (at >= chunk.size) return;
  uint i = chunk.begin + at, g = chunk.grad + at;
  Rates rates = load_rates(chunk.number);
  vec4 x_lo, x_hi, g_lo, g_hi, m_lo, m_hi, v_lo, v_hi;
  if (is_whole(at, chunk.size, i | g | p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3])) {
    load8_param(i, x_lo, x_hi);
    load8_grad(g, g_lo, g_hi);
    load8_m(i, m_lo, m_hi);
    load8_v(i, v_lo, v_hi);
    step4(rates, x_lo, g_lo, m_lo, v_lo);
    step4(rates, x_hi, g_hi, m_hi, v_hi);
    store8_param(i, x_lo, x_hi);
    store8_m(i, m_lo, m_hi);
    store8_v(i, v_lo, v_hi);
  } else {
    uint count = flat_end(at, chunk.size) - at;
    for (uint k = 0; k < count; ++k) {
      x_lo.x = load_param(i + k);
      m_lo.x = load_m(i + k);
      v_lo.x = load_v(i + k);
      step4(rates, x_lo, vec4(load_grad(g + k)), m_lo, v_lo);
      store_param(i + k, x_lo.x);
      store_m(i + k, m_lo.x);
      store_v(i + k, v_lo.x);
    }
  }
}
