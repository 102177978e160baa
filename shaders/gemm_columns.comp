//! buffers: a:T:read b:T:read c:U:read_write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32
//! params: MatmulParams
//! reference: none
//! local: subgroup
//! grid: groups
//! requires: shuffle
//! texels: yes
// matmul of few rows where the columns of b lie side by side: every lane has columns of its own.
#include "gemm_thin.glsl"
layout(constant_id = 0) const uint THIN = 1;  //! 1 2 4 8
layout(constant_id = 1) const bool WORDS = true;

vec4 load_columns(uint e) { return WORDS ? load4_b(e) : vec4(load_b(e)); }

void main() {
  const uint width = WORDS ? 4 : 1, tile_n = width * SUBGROUP_SIZE;
  const uint tiles_m = (p.m + THIN - 1) / THIN, tiles_n = (p.n + tile_n - 1) / tile_n;
  const uint n0 = group_id() % tiles_n * tile_n + width * lane;
  const uint m0 = group_id() / tiles_n % tiles_m * THIN, batch = group_id() / tiles_n / tiles_m;
  if (batch >= p.batch[0] * p.batch[1]) return;
  const Matrices first = matrices(batch);

  // Rows and columns past the edge repeat others; only the stores are masked.
  const uint column = first.b + min(n0, (p.n - 1) / width * width);
  uint row[THIN];
  vec4 acc[THIN];
  [[unroll]] for (uint i = 0; i < THIN; ++i) {
    row[i] = first.a + min(m0 + i, p.m - 1) * p.a_row;
    acc[i] = vec4(0.0);
  }
  uint k = 0;
  for (; k + LANES <= p.k; k += LANES) {
    float x[THIN];
    [[unroll]] for (uint i = 0; i < THIN; ++i)
      x[i] = load_a(row[i] + (k + lane % LANES) * p.a_col);
    [[unroll]] for (uint l = 0; l < LANES; ++l) {
      const vec4 w = load_columns(column + (k + l) * p.b_row);
      [[unroll]] for (uint i = 0; i < THIN; ++i) acc[i] += subgroupShuffle(x[i], l) * w;
    }
  }
  for (; k < p.k; ++k) {
    const vec4 w = load_columns(column + k * p.b_row);
    [[unroll]] for (uint i = 0; i < THIN; ++i) acc[i] += load_a(row[i] + k * p.a_col) * w;
  }
  [[unroll]] for (uint i = 0; i < THIN; ++i)
    if (m0 + i < p.m && n0 < p.n)
      store_columns(first.c + (m0 + i) * p.c_row + n0, acc[i], p.beta != 0.0, WORDS);
}
