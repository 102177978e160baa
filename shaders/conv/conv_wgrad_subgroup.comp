//! buffers: x:T:read w:T:read y:f32:write
//! types: T = f32 f16
//! params: ConvTileParams
//! reference: none
//! local: subgroup
//! grid: groups
//! requires: shuffle texels
// The weight's gradient, transposed, as an implicit matrix product on CPU drivers: rows are the taps' channels, and k
// is the output pixels in order; every lane follows its own pixels.
#include "matrix/gemm_tile.glsl"

layout(constant_id = 2) const bool WORDS_X = true;  // a pixel of a group consists of whole words
layout(constant_id = 3) const bool WORDS_W = true;

// Loads columns n and following of row q; after the last column it repeats that one.
void load_columns(uint q, uint row, uint n) {
  if (WORDS_W) {
    LOAD_WORD(load4_w, load8_w, row + min(n, (p.n - 1) / WIDTH * WIDTH), b[q]);
    return;
  }
  [[unroll]] for (uint h = 0; h < PARTS; ++h) b[q][h] = load4_w(row + min(n + 4 * h, (p.n - 1) / 4 * 4));
}

void main() {
  const uint rows = p.taps_h * p.taps_w * p.run, pixels = p.images * p.rows_h * p.rows_w;
  const uint tiles_m = (rows + TILE_ROWS - 1) / TILE_ROWS, tiles_n = (p.n + TILE_COLS - 1) / TILE_COLS;
  const uint tile = group_id() / tiles_m, z = tile / tiles_n;
  if (z >= p.groups * p.splits) return;
  const uint part = z % p.splits, group = z / p.splits;
  const uint m0 = group_id() % tiles_m * TILE_ROWS + first_lane / LANES * ROWS;
  const uint n0 = (tile % tiles_n * LANES + lane_n) * WIDTH;

  // The place of each four rows, relative to a pixel's first tap; words of them begin at multiples of a word.
  int down[ROWS], right[ROWS];
  [[unroll]] for (uint i = 0; i < ROWS; i += 4) {
    const uint row = min(m0 + i, rows - (WORDS_X ? WIDTH - i % WIDTH : 4)), tap = row / p.run;
    down[i] = int(tap / p.taps_w) * p.step_h;
    right[i] = int(tap % p.taps_w) * p.step_w + int(row % p.run);
  }

  const uint begin = part * p.k_chunk, end = min(begin + p.k_chunk, pixels);
  uint col[DEPTH], line[DEPTH], image[DEPTH];
  [[unroll]] for (uint u = 0; u < DEPTH; ++u) {
    const uint pixel = begin + lane_n * DEPTH + u;
    col[u] = pixel % p.rows_w;
    line[u] = pixel / p.rows_w % p.rows_h;
    image[u] = pixel / p.rows_w / p.rows_h;
  }
  const uint col_step = STEP % p.rows_w, line_step = STEP / p.rows_w % p.rows_h;
  const uint image_step = STEP / p.rows_w / p.rows_h;

  clear_tile();
  for (uint k = begin; k < end; k += STEP) {
    [[unroll]] for (uint u = 0; u < DEPTH; ++u) {
      const bool real = k + lane_n * DEPTH + u < end;
      const int h = int(line[u] * p.stride_h) + p.origin_h, v = int(col[u] * p.stride_w) + p.origin_w;
      const uint base = group * p.x_group + image[u] * p.in_h * p.in_row;
      vec4 word[PARTS];
      [[unroll]] for (uint i = 0; i < ROWS; i += 4) {
        const uint y = uint(h + down[i]), x = uint(v + right[i]), part = i / 4 % PARTS;
        const bool inside = real && y < p.in_h && x < p.in_row;
        if (!WORDS_X || part == 0) load_inside(base + y * p.in_row + x, inside, WORDS_X, part, word);
        [[unroll]] for (uint r = 0; r < 4; ++r) a[i + r][u / 4][u % 4] = word[part][r];
      }
      // Moves on by STEP pixels, without dividing.
      col[u] += col_step;
      line[u] += line_step;
      image[u] += image_step;
      if (col[u] >= p.rows_w) {
        col[u] -= p.rows_w;
        ++line[u];
      }
      if (line[u] >= p.rows_h) {
        line[u] -= p.rows_h;
        ++image[u];
      }
    }
    for (uint l = 0; l < LANES; ++l) {
      const uint k_lane = k + l * DEPTH;
      [[unroll]] for (uint q = 0; q < DEPTH; ++q)
        load_columns(q, group * p.w_group + min(k_lane + q, end - 1) * p.w_row, n0);
      multiply_tile(l);
    }
  }

  const uint y0 = group * p.y_group + part * p.y_image + n0;
  const uint columns = p.n - min(n0, p.n);
  [[unroll]] for (uint i = 0; i < ROWS; ++i)
    if (m0 + i < rows) store_columns(acc[i], y0 + (m0 + i) * p.y_w, columns);
}
