//! buffers: grad:f32:read partial:f32:write
//! params: AdafactorParams
//! local: 64
#include "optim/squares.glsl"

void main() {
  uint i = thread_id();
  if (i >= p.matrices * p.chunks * p.cols) return;
  uint part = i / p.cols, col = i - part * p.cols;
  uint matrix = part / p.chunks, first = (part - matrix * p.chunks) * ADAFACTOR_ROWS;
  uint end = min(first + ADAFACTOR_ROWS, p.rows), at = (matrix * p.rows + first) * p.cols + col;
  vec3 squares = vec3(0.0);
  for (uint r = first; r < end; ++r, at += p.cols) add_squares(squares, load_grad(at));
  store_partial(i, norm_of(squares));
}
