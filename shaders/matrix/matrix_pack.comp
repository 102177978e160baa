//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: MatrixPackParams
//! reference: none
//! local: 64
//! requires: texels
// Rewrites operands for the matrix kernels in whole words that are near each other.
void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint per_row = p.panel / 4, row = i / per_row % p.rows, panel = i / per_row / p.rows;
  const uint panels = (p.cols + p.panel - 1) / p.panel, batch = panel / panels;
  const uint col = panel % panels * p.panel + i % per_row * 4;
  const uint from = batch / p.batch_inner * p.x_batch[0] + batch % p.batch_inner * p.x_batch[1] +
                    row * p.x_row;
  vec4 v = vec4(0.0);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (col + j < p.cols) v[j] = load_x(from + (col + j) * p.x_col);
  store4_y(i * 4, v);
}
