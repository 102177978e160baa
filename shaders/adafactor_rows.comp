//! buffers: grad:f32:read row_var:f32:read_write state:f32:read
//! params: AdafactorMomentParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "adafactor.glsl"
#include "reduce.glsl"
#include "rows.glsl"

void main() {
  uint row = group_id();
  if (row >= p.matrices * p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  uint start = row * p.cols, words = word_columns(p.cols, p.offset[0]);
  vec4 squares = vec4(0.0);
  FOR_WORDS(c, words) {
    vec4 lo, hi;
    load8_grad(start + c, lo, hi);
    squares += lo * lo + hi * hi;
  }
  FOR_OTHERS(c, words, p.cols) {
    float g = load_grad(start + c);
    squares.x += g * g;
  }
  float total = workgroup_sum((squares.x + squares.y) + (squares.z + squares.w));
  if (gl_LocalInvocationID.x == 0) {
    store_row_var(row, moved(load_row_var(row), squared_factor() * total / p.cols));
  }
}
