//! buffers: param:f32:read grad:f32:read m:f32:read_write v:f32:read_write table:i32:read state:f32:read partial:f32:write
//! params: LambParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "optim/lamb_update.glsl"
#include "common/reduce.glsl"
#include "optim/squares.glsl"

void step4(Correction correction, vec4 x, vec4 g, inout vec4 m, inout vec4 v, inout Squares squares_x,
           inout Squares squares_u) {
  m = p.beta1 * m + (1.0 - p.beta1) * g;
  v = p.beta2 * v + (1.0 - p.beta2) * g * g;
  vec4 u = direction(correction, x, m, v);
  add_squares(squares_x, x);
  add_squares(squares_u, u);
}

void main() {
  uint row = group_id();
  if (row >= p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  Chunk chunk = load_chunk(p.first + row);
  Correction correction = load_correction(chunk.number);
  float factor = load_state(STATE_GRAD_FACTOR);
  uint offsets = chunk.begin | chunk.grad | p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3];
  Squares squares_x = no_squares(), squares_u = squares_x;
  for (uint at = gl_LocalInvocationID.x * 8; at < chunk.size; at += gl_WorkGroupSize.x * 8) {
    uint i = chunk.begin + at, g = chunk.grad + at;
    vec4 x_lo, x_hi, g_lo, g_hi, m_lo, m_hi, v_lo, v_hi;
    if (is_whole(at, chunk.size, offsets)) {
      load8_param(i, x_lo, x_hi);
      load8_grad(g, g_lo, g_hi);
      load8_m(i, m_lo, m_hi);
      load8_v(i, v_lo, v_hi);
      step4(correction, x_lo, factor * g_lo, m_lo, v_lo, squares_x, squares_u);
      step4(correction, x_hi, factor * g_hi, m_hi, v_hi, squares_x, squares_u);
      store8_m(i, m_lo, m_hi);
      store8_v(i, v_lo, v_hi);
    } else {
      uint count = flat_end(at, chunk.size) - at;
      for (uint k = 0; k < count; ++k) {
        vec4 x = vec4(load_param(i + k), 0.0, 0.0, 0.0), grad = vec4(factor * load_grad(g + k), 0.0, 0.0, 0.0);
        m_lo = vec4(load_m(i + k), 0.0, 0.0, 0.0);
        v_lo = vec4(load_v(i + k), 1.0, 1.0, 1.0);  // 0 / 0 without eps
        step4(correction, x, grad, m_lo, v_lo, squares_x, squares_u);
        store_m(i + k, m_lo.x);
        store_v(i + k, v_lo.x);
      }
    }
  }
  float norm_x = workgroup_norm(joined(squares_x)), norm_u = workgroup_norm(joined(squares_u));
  if (gl_LocalInvocationID.x != 0) return;
  uint number = chunk.number - p.number;
  store_partial(number, norm_x);
  store_partial(p.chunks + number, norm_u);
}
