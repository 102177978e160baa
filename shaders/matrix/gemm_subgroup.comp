//! buffers: x:T:read w:T:read y:U:read_write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32
//! params: GemmParams
//! reference: none
//! optimize: no
//! local: subgroup
//! grid: groups
//! requires: shuffle texels
// y = alpha x w (+ beta y) on CPU drivers.
#include "matrix/gemm_tile.glsl"

layout(constant_id = 2) const bool A_TRANSPOSED = false;
layout(constant_id = 3) const bool B_TRANSPOSED = false;
layout(constant_id = 4) const bool ADDS = false;

// Loads part h of the columns of y from column n, element e, on; past the edge, the last ones. There are no conditions,
// since these are expensive if every lane loads for itself.
vec4 columns_of_y(uint e, uint n, uint h) {
  if (STORES >= 4) return load4_y(e - n + min(n + 4 * h, p.n - 4));
  vec4 v;
  [[unroll]] for (uint j = 0; j < 4; ++j) v[j] = load_y(e - n + min(n + 4 * h + j, p.n - 1));
  return v;
}

void main() {
  // Row tiles follow each other, so that the columns of w stay in the cache.
  const uint tiles_m = (p.m + TILE_ROWS - 1) / TILE_ROWS, tiles_n = (p.n + TILE_COLS - 1) / TILE_COLS;
  const uint tile = group_id() / tiles_m, z = tile / tiles_n;
  if (z >= p.batches * p.splits) return;
  const uint part = z % p.splits, batch = z / p.splits;
  const uvec2 at = uvec2(batch / p.batch_inner, batch % p.batch_inner);
  const uint a0 = at.x * p.a_batch[0] + at.y * p.a_batch[1];
  const uint b0 = at.x * p.b_batch[0] + at.y * p.b_batch[1];
  const uint tile_m = group_id() % tiles_m, first_row = first_lane / LANES * ROWS;
  const uint m0 = tile_m * TILE_ROWS + first_row;
  const uint tile_n = tile % tiles_n, n0 = tile_n * TILE_COLS + lane_n * WIDTH;

  const uint n_in_tile = min(lane_n * WIDTH, (p.n - 1 - tile_n * TILE_COLS) / WIDTH * WIDTH);

  // Rows and columns past the edge repeat the last ones; only the stores are masked.
  uint row[ROWS];      // element of row i
  uint column[WIDTH];  // element of column j, or of all columns
  const uint last_row = p.m - 1 - tile_m * TILE_ROWS;
  [[unroll]] for (uint i = 0; i < ROWS; ++i)
    row[i] = a0 + (A_TRANSPOSED ? tile_m * p.a_panel + min(first_row + i, last_row)
                                : min(m0 + i, p.m - 1) * p.a_row);
  [[unroll]] for (uint j = 0; j < WIDTH; ++j)
    column[j] = b0 + (B_TRANSPOSED ? min(n0 + j, p.n - 1) * p.b_col : tile_n * p.b_panel + n_in_tile);

  uint row_word[ROWS];  // the word that begins with row i, if a is transposed
  [[unroll]] for (uint i = 0; i < ROWS; i += WIDTH)
    row_word[i] = a0 + tile_m * p.a_panel + min(first_row + i, last_row / WIDTH * WIDTH);

  clear_tile();
  const uint k_end = min((part + 1) * p.k_chunk, p.k);
  uint k = part * p.k_chunk;
  while (k + DEPTH <= k_end) {
    const uint k_lane = k + lane_n * DEPTH;  // values beyond the end are loaded but not used
    if (A_TRANSPOSED) {
      [[unroll]] for (uint i = 0; i < ROWS; i += WIDTH)
        [[unroll]] for (uint u = 0; u < DEPTH; ++u) {
          vec4 rows[PARTS];
          LOAD_WORD(load4_x, load8_x, row_word[i] + (k_lane + u) * p.a_col, rows);
          [[unroll]] for (uint r = 0; r < WIDTH; ++r) a[i + r][u / 4][u % 4] = rows[r / 4][r % 4];
        }
    } else {
      [[unroll]] for (uint i = 0; i < ROWS; ++i) LOAD_WORD(load4_x, load8_x, row[i] + k_lane, a[i]);
    }
    const uint lanes = min(LANES, (k_end - k) / DEPTH);
    for (uint l = 0; l < lanes; ++l, k += DEPTH) {
      if (B_TRANSPOSED) {
        [[unroll]] for (uint j = 0; j < WIDTH; ++j) {
          vec4 values[PARTS];  // by k
          LOAD_WORD(load4_w, load8_w, column[j] + k, values);
          [[unroll]] for (uint q = 0; q < DEPTH; ++q) b[q][j / 4][j % 4] = values[q / 4][q % 4];
        }
      } else {
        [[unroll]] for (uint q = 0; q < DEPTH; ++q) LOAD_WORD(load4_w, load8_w, column[0] + (k + q) * p.b_row, b[q]);
      }
      multiply_tile(l);
    }
  }
  for (; k < k_end; ++k) {  // the last values of k, one at a time
    vec4 last[PARTS];
    if (B_TRANSPOSED) {
      [[unroll]] for (uint j = 0; j < WIDTH; ++j) last[j / 4][j % 4] = load_w(column[j] + k);
    } else {
      LOAD_WORD(load4_w, load8_w, column[0] + k * p.b_row, last);
    }
    [[unroll]] for (uint i = 0; i < ROWS; ++i) {
      const float value = load_x(row[i] + k * p.a_col);
      [[unroll]] for (uint h = 0; h < PARTS; ++h) acc[i][h] += value * last[h];
    }
  }

  const uint c0 = at.x * p.c_batch[0] + at.y * p.c_batch[1] + part * p.c_split + n0;
  const uint columns = p.n - min(n0, p.n);
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint e = c0 + (m0 + i) * p.c_row;
    if (m0 + i < p.m) {
      vec4 row[PARTS];
      [[unroll]] for (uint h = 0; h < PARTS; ++h)
        row[h] = p.alpha * acc[i][h] + (ADDS ? p.beta * columns_of_y(e, n0, h) : vec4(0.0));
      store_columns(row, e, columns);
    }
  }
}
