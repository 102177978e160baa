//! buffers: a:T:read b:T:read c:U:read_write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32
//! params: MatmulParams
//! reference: none
//! local: 64
// matmul of k <= 32768, with one element per thread, for problems too small for tiles.

void main() {
  const uint i = thread_id(), n = i % p.n, m = i / p.n % p.m, batch = i / p.n / p.m;
  if (batch >= p.batch[0] * p.batch[1]) return;
  const uvec2 at = uvec2(batch / p.batch[1], batch % p.batch[1]);
  const uint a0 = at.x * p.a_batch[0] + at.y * p.a_batch[1] + m * p.a_row;
  const uint b0 = at.x * p.b_batch[0] + at.y * p.b_batch[1] + n * p.b_col;
  const uint to = at.x * p.c_batch[0] + at.y * p.c_batch[1] + m * p.c_row + n;
  float sum = 0.0;
  for (uint k = 0; k < p.k; ++k) sum += load_a(a0 + k * p.a_col) * load_b(b0 + k * p.b_row);
  sum *= p.alpha;
  store_c(to, p.beta == 0.0 ? sum : sum + p.beta * load_c(to));
}
