//! buffers: param:f32:read grad:f32:read row_var:f32:read_write col_var:f32:read mean:f32:read state:f32:read partial:f32:write
//! params: AdafactorParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "optim/adafactor_update.glsl"

void main() {
  uint group = group_id();
  if (group >= p.chunks || load_state(STATE_FOUND_INF) != 0.0) return;
  float factor = load_state(STATE_GRAD_FACTOR);
  vec3 squares_x = vec3(0.0), squares_u = squares_x;
  FOR_CHUNK(i, group) {
    float x = load_param(i), g = factor * load_grad(i), v;
    if (FACTORED) {
      v = factored_estimate(i);
    } else {
      v = moved(load_row_var(i), g * g);
      store_row_var(i, v);
    }
    float u = direction(g, v);
    add_squares(squares_x, x);
    add_squares(squares_u, u);
  }
  float norm_x = workgroup_norm(squares_x), norm_u = workgroup_norm(squares_u);
  if (gl_LocalInvocationID.x != 0) return;
  store_partial(group, norm_x);
  store_partial(p.chunks + group, norm_u);
}
