//! buffers: x:f32:read y:U:read_write
//! types: U = f32 f16
//! params: MatrixReduceParams
//! cpu: none
//! local: 64
//! texels: yes
#define AHEAD 4  // parts that are loaded at once

// Sums partial products in a fixed order and writes them where they belong.
void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint col = i % p.cols, row = i / p.cols % p.rows, batch = i / p.cols / p.rows;
  const uint from =
      batch * p.x_batch + row * p.x_i + col / p.inner * p.x_outer + col % p.inner * p.x_inner;
  float sum = 0.0;
  uint part = 0;
  for (; part + AHEAD <= p.parts; part += AHEAD) {
    float x[AHEAD];
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) x[k] = load_x(from + (part + k) * p.x_split);
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) sum += x[k];
  }
  for (; part < p.parts; ++part) sum += load_x(from + part * p.x_split);
  const uint to = batch / p.batch_inner * p.y_batch[0] + batch % p.batch_inner * p.y_batch[1] +
                  row * p.y_row + col;
  sum *= p.alpha;
  store_y(to, p.beta == 0.0 ? sum : sum + p.beta * load_y(to));
}
