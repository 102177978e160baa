//! buffers: x:T:read target:U:read weight:f32:read lse:f32:read mass:f32:read dloss:f32:read dx:T:write
//! types: T,U = f32,f32 f16,f16 f16,f32 f32,i32 f16,i32
//! params: ClassLossParams
//! local: 64
#include "common/flat.glsl"
#include "common/numbers.glsl"
#include "losses/soft_target.glsl"

float slope(uint i, float x) {
  uint row = i / p.cols;
#if !U_FLOAT
  if (is_ignored(row)) return 0.0;
#endif
  float part = share(row, i - row * p.cols);
  return load_dloss(row) * (load_mass(row) * exp(x - load_lse(row)) - part);
}

void main() {
  uint n = p.rows * p.cols, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  if (is_whole(i, n, p.offset[0] | p.offset[6])) {
    vec4 lo, hi;
    load8_x(i, lo, hi);
    store8_dx(i, vec4(slope(i, lo.x), slope(i + 1, lo.y), slope(i + 2, lo.z), slope(i + 3, lo.w)),
              vec4(slope(i + 4, hi.x), slope(i + 5, hi.y), slope(i + 6, hi.z), slope(i + 7, hi.w)));
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) store_dx(k, slope(k, load_x(k)));
  }
}
