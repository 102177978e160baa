//! buffers: target:i32:read dloss:f32:read dx:T:write
//! types: T = f32 f16
//! params: ClassLossParams
//! local: 64
#include "common/flat.glsl"
#include "common/numbers.glsl"

float slope(uint i) {
  uint row = i / p.cols;
  int t = load_target(row);
  if (t == p.ignore_index) return 0.0;
  if (t < 0 || t >= int(p.cols)) return NAN;
  return t == int(i - row * p.cols) ? -load_dloss(row) : 0.0;
}

void main() {
  uint n = p.rows * p.cols, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  if (is_whole(i, n, p.offset[2])) {
    store8_dx(i, vec4(slope(i), slope(i + 1), slope(i + 2), slope(i + 3)),
              vec4(slope(i + 4), slope(i + 5), slope(i + 6), slope(i + 7)));
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) store_dx(k, slope(k));
  }
}
