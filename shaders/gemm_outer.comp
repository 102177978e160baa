//! buffers: a:T:read b:T:read c:U:read_write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32
//! params: MatmulParams
//! reference: none
//! local: subgroup
//! grid: groups
//! requires: shuffle
//! texels: yes
// matmul of few terms in each sum, the columns of b side by side: every lane has columns of its own
// and goes down LANES rows.
#include "gemm_thin.glsl"
layout(constant_id = 0) const uint THIN = 1;  //! 1 2 4 8
layout(constant_id = 1) const bool WORDS = true;
layout(constant_id = 2) const bool ADDS = false;

void main() {
  const uint width = WORDS ? 4 : 1, tile_n = width * SUBGROUP_SIZE;
  const uint tiles_m = (p.m + LANES - 1) / LANES, tiles_n = (p.n + tile_n - 1) / tile_n;
  const uint n0 = group_id() % tiles_n * tile_n + width * lane;
  const uint m0 = group_id() / tiles_n % tiles_m * LANES, batch = group_id() / tiles_n / tiles_m;
  if (batch >= p.batch[0] * p.batch[1]) return;
  const Matrices first = matrices(batch);

  // Terms past the last are zero.
  const uint column = first.b + min(n0, (p.n - 1) / width * width);
  const uint row = first.a + min(m0 + lane % LANES, p.m - 1) * p.a_row;
  float x[THIN];
  vec4 w[THIN];
  [[unroll]] for (uint k = 0; k < THIN; ++k) {
    x[k] = 0.0;
    w[k] = vec4(0.0);
    if (k < p.k) {
      x[k] = load_a(row + k * p.a_col);
      w[k] = WORDS ? load4_b(column + k * p.b_row) : vec4(load_b(column + k * p.b_row));
    }
  }
  [[unroll]] for (uint l = 0; l < LANES; ++l) {
    vec4 sum = subgroupShuffle(x[0], l) * w[0];
    [[unroll]] for (uint k = 1; k < THIN; ++k) sum += subgroupShuffle(x[k], l) * w[k];
    if (m0 + l < p.m && n0 < p.n)
      store_columns(first.c + (m0 + l) * p.c_row + n0, sum, ADDS, WORDS);
  }
}
