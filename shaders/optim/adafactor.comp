//! buffers: param:f32:read_write grad:f32:read row_var:f32:read col_var:f32:read mean:f32:read state:f32:read partial:f32:read
//! params: AdafactorParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "optim/adafactor_update.glsl"

// Adds up the sums over all chunks of the parameter, in the same order in every workgroup.
float root_mean_square(uint begin) {
  vec3 squares = vec3(0.0);
  for (uint c = gl_LocalInvocationID.x; c < p.chunks; c += gl_WorkGroupSize.x) {
    add_squares(squares, load_partial(begin + c));
  }
  return workgroup_norm(squares) / sqrt(float(p.n));
}

void main() {
  uint group = group_id();
  if (group >= p.chunks || load_state(STATE_FOUND_INF) != 0.0) return;
  float rms_x = root_mean_square(0), rms_u = root_mean_square(p.chunks);
  float lr = p.lr * load_state(STATE_LR_FACTOR), rate = lr;
  if ((p.flags & ADAFACTOR_RELATIVE) != 0) {
    rate = min(rate, inversesqrt(float(own_updates(p.own))));
  }
  if ((p.flags & ADAFACTOR_SCALED) != 0) rate *= max(p.eps2, rms_x);
  rate /= max(1.0, rms_u / p.clip);
  float keep = 1.0 - lr * p.weight_decay, factor = load_state(STATE_GRAD_FACTOR);
  FOR_CHUNK(i, group) {
    float v = FACTORED ? factored_estimate(i) : load_row_var(i);
    store_param(i, keep * load_param(i) - rate * direction(factor * load_grad(i), v));
  }
}
