//! buffers: a:T:read b:T:read c:U:read_write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32
//! params: MatmulParams
//! reference: none
//! local: subgroup
//! grid: groups
//! requires: shuffle
//! texels: yes
// matmul of few rows where the terms of a sum lie side by side in a and b: the lanes share a sum.
#include "gemm_thin.glsl"
layout(constant_id = 0) const uint THIN = 1;  //! 1 2 4 8
layout(constant_id = 1) const bool WORDS = true;

#define COLUMNS (THIN < 4 ? 4 / THIN : 1)

void main() {
  const uint tiles_m = (p.m + THIN - 1) / THIN, tiles_n = (p.n + COLUMNS - 1) / COLUMNS;
  const uint tile = group_id() % tiles_n, m0 = group_id() / tiles_n % tiles_m * THIN;
  const uint batch = group_id() / tiles_n / tiles_m, n0 = tile * COLUMNS;
  if (batch >= p.batch[0] * p.batch[1]) return;
  const Matrices first = matrices(batch);

  // Rows and columns past the edge repeat the last ones; only the stores are masked.
  uint row[THIN], column[COLUMNS];
  float acc[THIN][COLUMNS];
  [[unroll]] for (uint i = 0; i < THIN; ++i) row[i] = first.a + min(m0 + i, p.m - 1) * p.a_row;
  [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
    column[j] = first.b + min(n0 + j, p.n - 1) * p.b_col;
    [[unroll]] for (uint i = 0; i < THIN; ++i) acc[i][j] = 0.0;
  }
  uint k = 0;
  if (WORDS) {
    for (; k + 4 * SUBGROUP_SIZE <= p.k; k += 4 * SUBGROUP_SIZE) {
      vec4 x[THIN];
      [[unroll]] for (uint i = 0; i < THIN; ++i) x[i] = load4_a(row[i] + k + 4 * lane);
      [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
        const vec4 w = load4_b(column[j] + k + 4 * lane);
        [[unroll]] for (uint i = 0; i < THIN; ++i) acc[i][j] += dot(x[i], w);
      }
    }
  }
  for (; k < p.k; k += SUBGROUP_SIZE) {
    const uint at = min(k + lane, p.k - 1);
    const bool is_inside = k + lane < p.k;
    [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
      const float w = load_b(column[j] + at);
      [[unroll]] for (uint i = 0; i < THIN; ++i)
        acc[i][j] += is_inside ? load_a(row[i] + at) * w : 0.0;
    }
  }
  [[unroll]] for (uint i = 0; i < THIN; ++i) {
    [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
      for (uint d = 1; d < SUBGROUP_SIZE; d *= 2)
        acc[i][j] += subgroupShuffle(acc[i][j], lane ^ d);
      if (lane == 0 && m0 + i < p.m && n0 + j < p.n)
        store_columns(first.c + (m0 + i) * p.c_row + n0 + j, vec4(acc[i][j]), p.beta != 0.0, false);
    }
  }
}
