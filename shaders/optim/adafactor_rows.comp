//! buffers: grad:f32:read row_var:f32:read_write state:f32:read
//! params: AdafactorParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "optim/adafactor.glsl"
#include "common/reduce.glsl"
#include "common/rows.glsl"
#include "optim/squares.glsl"

void main() {
  uint row = group_id();
  if (row >= p.matrices * p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  uint start = row * p.cols, words = word_columns(p.cols, p.offset[0]);
  Squares squares = no_squares();
  FOR_WORDS(c, words) {
    vec4 lo, hi;
    load8_grad(start + c, lo, hi);
    add_squares(squares, lo);
    add_squares(squares, hi);
  }
  vec3 sums = joined(squares);
  FOR_OTHERS(c, words, p.cols) add_squares(sums, load_grad(start + c));
  float norm = workgroup_norm(sums);
  if (gl_LocalInvocationID.x == 0) {
    store_row_var(row, moved(load_row_var(row), mean_square(norm, p.cols)));
  }
}
