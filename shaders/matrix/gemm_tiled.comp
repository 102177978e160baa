//! buffers: a:T:read b:T:read c:U:read_write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32
//! params: GemmParams
//! reference: none
//! local: 2*TILE
//! grid: groups
//! define: TILE=32,64,128
//! optimize: no
// c = alpha a b (+ beta c) on GPUs, with any strides and edges.
layout(constant_id = 0) const bool LEFT_ALONG_K = true;    // a_col is 1, else a_row
layout(constant_id = 1) const bool RIGHT_ALONG_K = false;  // b_row is 1, else b_col
layout(constant_id = 2) const bool WORDS_IN = true;        // a and b consist of whole words of 16 bytes
layout(constant_id = 3) const bool WORDS_OUT = true;       // rows of c consist of whole words of 4 elements
#include "matrix/gemm.glsl"

uint c0;

void store_part(uint row, uint column, vec4 v) {
  const uint m = m0 + row, n = n0 + column, e = c0 + m * p.c_row + n;
  if (m >= p.m || n >= p.n) return;
  v *= p.alpha;
  if (WORDS_OUT) {
    if (p.beta != 0.0) v += p.beta * load4_c(e);
    store4_c(e, v);
  } else {
    [[unroll]] for (uint i = 0; i < 4; ++i)
      if (n + i < p.n) store_c(e + i, p.beta != 0.0 ? v[i] + p.beta * load_c(e + i) : v[i]);
  }
}

void main() {
  const uint tiles_m = (p.m + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE;
  const uint tile = group_id() / tiles_m, z = tile / tiles_n;
  if (z >= p.batches * p.splits) return;
  const uint part = z % p.splits, batch = z / p.splits;
  const uvec2 at = uvec2(batch / p.batch_inner, batch % p.batch_inner);
  a0 = at.x * p.a_batch[0] + at.y * p.a_batch[1];
  b0 = at.x * p.b_batch[0] + at.y * p.b_batch[1];
  c0 = at.x * p.c_batch[0] + at.y * p.c_batch[1] + part * p.c_split;
  m0 = group_id() % tiles_m * TILE;
  n0 = tile % tiles_n * TILE;
  end = min((part + 1) * p.k_chunk, p.k);
  make_product(part * p.k_chunk);
}
