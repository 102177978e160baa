//! buffers: a:T:read b:T:read c:U:read_write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32
//! params: GemmParams
//! cpu: none
//! local: 256
//! grid: groups
//! define: TILE=64,128
// c = alpha a b (+ beta c) on GPUs, with any strides and edges.
#include "tile_shared.glsl"

layout(constant_id = 0) const bool ADDS = false;

void main() {
  const uint tiles_m = (p.m + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE;
  const uint tile = group_id() / tiles_m, z = tile / tiles_n;
  if (z >= p.batches * p.splits) return;
  const uint part = z % p.splits, batch = z / p.splits;
  const uvec2 at = uvec2(batch / p.batch_inner, batch % p.batch_inner);
  const uint a0 = at.x * p.a_batch[0] + at.y * p.a_batch[1];
  const uint b0 = at.x * p.b_batch[0] + at.y * p.b_batch[1];
  const uint m0 = group_id() % tiles_m * TILE, n0 = tile % tiles_n * TILE;
  const uint thread = gl_LocalInvocationID.x;

  clear_tile();
  const uint end = min((part + 1) * p.k_chunk, p.k);
  for (uint k0 = part * p.k_chunk; k0 < end; k0 += TILE_K) {
    // Neighbours in a subgroup read neighbours in memory.
    [[unroll]] for (uint e = 0; e < TILE * TILE_K; e += 256) {
      const uint i = e + thread;
      const uint row = p.a_col == 1 ? i / TILE_K : i % TILE, k = p.a_col == 1 ? i % TILE_K : i / TILE;
      const bool inside = m0 + row < p.m && k0 + k < end;
      put_left(row, k, inside ? load_a(a0 + (m0 + row) * p.a_row + (k0 + k) * p.a_col) : 0.0);
    }
    [[unroll]] for (uint e = 0; e < TILE * TILE_K; e += 256) {
      const uint i = e + thread;
      const uint col = p.b_col == 1 ? i % TILE : i / TILE_K, k = p.b_col == 1 ? i / TILE : i % TILE_K;
      const bool inside = n0 + col < p.n && k0 + k < end;
      put_right(k, col, inside ? load_b(b0 + (k0 + k) * p.b_row + (n0 + col) * p.b_col) : 0.0);
    }
    multiply_panels();
  }

  const uint c0 = at.x * p.c_batch[0] + at.y * p.c_batch[1] + part * p.c_split;
  [[unroll]] for (uint i = 0; i < PER; ++i) {
    const uint m = m0 + thread_row() + i;
    [[unroll]] for (uint j = 0; j < PER; ++j) {
      const uint n = n0 + thread_col() + j;
      const uint e = c0 + m * p.c_row + n;
      if (m < p.m && n < p.n) store_c(e, ADDS ? p.alpha * acc[i][j] + p.beta * load_c(e) : p.alpha * acc[i][j]);
    }
  }
}
