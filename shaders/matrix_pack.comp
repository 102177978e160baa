//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: MatrixPackParams
//! local: 64
// Operands that the matrix kernels cannot read in whole words, copied dense with padded rows.
void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint per_row = p.y_cols / 4, col = i % per_row * 4;
  const uint row = i / per_row % p.y_rows, batch = i / per_row / p.y_rows;
  const uint from = batch / p.batch_inner * p.x_batch[0] + batch % p.batch_inner * p.x_batch[1] +
                    row * p.x_row;
  vec4 v = vec4(0.0);
  if (row < p.rows) {
    [[unroll]] for (uint j = 0; j < 4; ++j)
      if (col + j < p.cols) v[j] = load_x(from + (col + j) * p.x_col);
  }
  store4_y(i * 4, v);
}
