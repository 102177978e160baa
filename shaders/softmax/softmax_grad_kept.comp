//! buffers: y:T:read dy:T:read dx:U:write
//! types: T,U = f32,f32 f16,f16 f32,f16
//! params: SoftmaxParams
//! reference: softmax_grad
//! local: subgroup
//! grid: groups
//! requires: subgroup arithmetic shuffle
#define HAS_ARITHMETIC 1
#include "common/kept_rows.glsl"
#include "common/numbers.glsl"
layout(constant_id = 0) const uint LOG = 0;  //! 0 1

vec4 y_lo[MOST_ROUNDS], y_hi[MOST_ROUNDS], dy_lo[MOST_ROUNDS], dy_hi[MOST_ROUNDS];

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  KEEP_ROW(load8_y, start, p.cols, 0.0, y_lo, y_hi)
  KEEP_ROW(load8_dy, start, p.cols, 0.0, dy_lo, dy_hi)
  vec4 sums = vec4(0.0);
  FOR_ROUNDS(r) {
    sums += LOG == 1 ? dy_lo[r] + dy_hi[r] : y_lo[r] * dy_lo[r] + y_hi[r] * dy_hi[r];
  }
  float total = team_sum(sums);
  FOR_ROUNDS(r) {
    uint c = team_column(r);
    if (c < p.cols) {
      if (LOG == 1) {
        store8_dx(start + c, dy_lo[r] - exp(y_lo[r]) * total, dy_hi[r] - exp(y_hi[r]) * total);
      } else {
        store8_dx(start + c, y_lo[r] * (dy_lo[r] - total), y_hi[r] * (dy_hi[r] - total));
      }
    }
  }
}
