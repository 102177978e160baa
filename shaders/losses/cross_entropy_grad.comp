//! buffers: x:T:read target:i32:read lse:f32:read dloss:f32:read dx:T:write
//! types: T = f32 f16
//! params: ClassLossParams
//! local: 64
#include "common/flat.glsl"
#include "common/numbers.glsl"

struct Row {
  int target;
  float lse, dloss;
};

Row load_row(uint row) { return Row(load_target(row), load_lse(row), load_dloss(row)); }

// Returns the gradient of columns c to c + 3.
vec4 grad(Row row, uint c, vec4 x) {
  if (row.target == p.ignore_index) return vec4(0.0);
  if (row.target < 0 || row.target >= int(p.cols)) return vec4(NAN);
  vec4 onehot = vec4(equal(ivec4(c) + ivec4(0, 1, 2, 3), ivec4(row.target)));
  return row.dloss * (exp(x - row.lse) - (1.0 - p.smoothing) * onehot - p.smoothing / p.cols);
}

void main() {
  uint n = p.rows * p.cols, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  if (is_whole(i, n, p.cols | p.offset[0] | p.offset[4])) {
    uint r = i / p.cols, c = i - r * p.cols;
    Row row = load_row(r);
    vec4 lo, hi;
    load8_x(i, lo, hi);
    store8_dx(i, grad(row, c, lo), grad(row, c + 4, hi));
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) {
      uint r = k / p.cols;
      store_dx(k, grad(load_row(r), k - r * p.cols, vec4(load_x(k))).x);
    }
  }
}
