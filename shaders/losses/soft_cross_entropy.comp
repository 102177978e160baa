//! buffers: x:T:read target:U:read weight:f32:read loss:f32:write lse:f32:write mass:f32:write
//! types: T,U = f32,f32 f16,f16 f16,f32 f32,i32 f16,i32
//! params: ClassLossParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/log_sum_exp.glsl"
#include "losses/soft_target.glsl"

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  RowSum s = row_sum(start, word_columns(p.cols, p.offset[0]));
  float lse = s.top + s.log_total, loss = 0.0, mass = 0.0;
  FOR_OTHERS(c, 0, p.cols) {
    float part = share(row, c);
    mass += part;
    // A part of 0 is left out, since 0 * (lse - x) is NaN if x is -inf.
    if (part != 0.0) loss += part * (lse - load_x(start + c));
  }
  loss = workgroup_sum(loss);
  mass = workgroup_sum(mass);
  if (gl_LocalInvocationID.x != 0) return;
#if !U_FLOAT
  if (is_ignored(row)) loss = mass = 0.0;
  if (is_outside(row)) loss = mass = NAN;
#endif
  store_loss(row, loss);
  store_lse(row, lse);
  store_mass(row, mass);
}
