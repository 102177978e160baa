//! buffers: param:f32:read_write m:f32:read v:f32:read table:i32:read ratio:f32:read state:f32:read
//! params: LambParams
//! local: subgroup
//! grid: groups
#include "optim/lamb_update.glsl"

void main() {
  uint row = group_id();
  if (row >= p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  Chunk chunk = load_chunk(p.first + row);
  uint end = chunk.begin + chunk.size;
  float rate = p.lr * load_state(STATE_LR_FACTOR) * load_ratio(chunk.number - p.number);
  Correction correction = load_correction(chunk.number);
  uint offsets = chunk.begin | p.offset[0] | p.offset[1] | p.offset[2];
  for (uint i = chunk.begin + gl_LocalInvocationID.x * 8; i < end; i += gl_WorkGroupSize.x * 8) {
    if (is_whole(i, end, offsets)) {
      vec4 x_lo, x_hi, m_lo, m_hi, v_lo, v_hi;
      load8_param(i, x_lo, x_hi);
      load8_m(i, m_lo, m_hi);
      load8_v(i, v_lo, v_hi);
      x_lo -= rate * direction(correction, x_lo, m_lo, v_lo);
      x_hi -= rate * direction(correction, x_hi, m_hi, v_hi);
      store8_param(i, x_lo, x_hi);
    } else {
      for (uint k = i; k < flat_end(i, end); ++k) {
        float x = load_param(k);
        vec4 u = direction(correction, vec4(x), vec4(load_m(k)), vec4(load_v(k)));
        store_param(k, x - rate * u.x);
      }
    }
  }
}
