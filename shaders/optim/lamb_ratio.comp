//! buffers: partial:f32:read first:i32:read state:f32:read ratio:f32:write
//! params: LambParams
//! local: 64
#include "optim/squares.glsl"

void main() {
  uint i = thread_id();
  if (i >= p.parameters || load_state(STATE_FOUND_INF) != 0.0) return;
  vec3 squares_x = vec3(0.0), squares_u = squares_x;
  uint first = uint(load_first(i)), end = uint(load_first(i + 1));
  for (uint chunk = first; chunk < end; ++chunk) {
    add_squares(squares_x, load_partial(chunk));
    add_squares(squares_u, load_partial(p.chunks + chunk));
  }
  float norm_x = norm_of(squares_x), norm_u = norm_of(squares_u);
  float ratio = p.adapt != 0 && norm_x > 0.0 && norm_u > 0.0 ? norm_x / norm_u : 1.0;
  for (uint chunk = first; chunk < end; ++chunk) store_ratio(chunk, ratio);
}
