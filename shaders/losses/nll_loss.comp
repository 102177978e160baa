//! buffers: x:T:read target:i32:read loss:f32:write
//! types: T = f32 f16
//! params: ClassLossParams
//! local: 64
#include "common/numbers.glsl"

void main() {
  uint row = thread_id();
  if (row >= p.rows) return;
  int t = load_target(row);
  float loss = NAN;
  if (t == p.ignore_index) {
    loss = 0.0;
  } else if (t >= 0 && t < int(p.cols)) {
    loss = -load_x(row * p.cols + t);
  }
  store_loss(row, loss);
}
