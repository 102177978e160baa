//! buffers: partial:f32:read col_var:f32:read_write state:f32:read
//! params: AdafactorParams
//! local: 64
#include "optim/adafactor.glsl"
#include "optim/squares.glsl"

void main() {
  uint i = thread_id();
  if (i >= p.matrices * p.cols || load_state(STATE_FOUND_INF) != 0.0) return;
  uint matrix = i / p.cols, at = matrix * p.chunks * p.cols + (i - matrix * p.cols);
  vec3 squares = vec3(0.0);
  for (uint c = 0; c < p.chunks; ++c, at += p.cols) add_squares(squares, load_partial(at));
  store_col_var(i, moved(load_col_var(i), mean_square(norm_of(squares), p.rows)));
}
