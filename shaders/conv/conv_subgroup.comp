//! buffers: x:T:read w:T:read y:U:write
//! types: T,U = f32,f32 f16,f16 f16,f32
//! params: ConvTileParams
//! reference: none
//! optimize: no
//! local: subgroup
//! grid: groups
//! requires: shuffle texels
// Convolution (forward, and the input's gradient) as an implicit matrix product on CPU drivers.
#include "matrix/gemm_tile.glsl"

layout(constant_id = 2) const bool WORDS_X = true;  // a pixel of a group consists of whole words

#define OUTSIDE 0x40000000  // remains outside with any offset in a row of the image added

void main() {
  const uint rows = p.images * p.rows_h * p.rows_w;
  const uint tiles_m = (rows + TILE_ROWS - 1) / TILE_ROWS, tiles_n = (p.n + TILE_COLS - 1) / TILE_COLS;
  const uint tile = group_id() / tiles_m, group = tile / tiles_n;
  if (group >= p.groups) return;
  const uint m0 = group_id() % tiles_m * TILE_ROWS + first_lane / LANES * ROWS;
  const uint n0 = (tile % tiles_n * LANES + lane_n) * WIDTH;

  // Each lane keeps the places of some rows: row r is the (r / LANES)-th of lane r % LANES.
  uint base[ROWS / 2], to[ROWS / 2];
  int top[ROWS / 2], left[ROWS / 2];
  [[unroll]] for (uint t = 0; t < ROWS / LANES; ++t) {
    const uint row = min(m0 + t * LANES + lane_n, rows - 1);
    const uint j = row % p.rows_w, i = row / p.rows_w % p.rows_h, image = row / p.rows_w / p.rows_h;
    base[t] = group * p.x_group + image * p.in_h * p.in_row;
    to[t] = group * p.y_group + image * p.y_image + i * p.y_h + j * p.y_w;
    top[t] = int(i * p.stride_h) + p.origin_h;
    left[t] = int(j * p.stride_w) + p.origin_w;
  }

  clear_tile();
  uint w_at = group * p.w_group + n0;
  for (uint th = 0; th < p.taps_h; ++th) {
    for (uint tw = 0; tw < p.taps_w; ++tw) {
      uint run_at[ROWS];
      int run_left[ROWS];
      uint at[ROWS / 2];
      int from[ROWS / 2];
      [[unroll]] for (uint t = 0; t < ROWS / LANES; ++t) {
        const int h = top[t] + int(th) * p.step_h, v = left[t] + int(tw) * p.step_w;
        at[t] = base[t] + uint(h) * p.in_row + uint(v);
        from[t] = uint(h) < p.in_h ? v : OUTSIDE;
      }
      [[unroll]] for (uint i = 0; i < ROWS; ++i) {
        run_at[i] = subgroupShuffle(at[i / LANES], first_lane + i % LANES);
        run_left[i] = subgroupShuffle(from[i / LANES], first_lane + i % LANES);
      }
      for (uint e = 0; e < p.run; e += STEP) {
        const uint e_lane = e + lane_n * DEPTH;
        [[unroll]] for (uint h = 0; h < (WORDS_X ? 1 : PARTS); ++h) {
          const uint e_part = e_lane + 4 * h;
          const int v = e_part < p.run ? int(e_part) : OUTSIDE;
          [[unroll]] for (uint i = 0; i < ROWS; ++i) {
            const bool inside = uint(run_left[i] + v) < p.in_row;
            load_inside(run_at[i] + e_part, inside, WORDS_X, h, a[i]);
          }
        }
        for (uint l = 0; l < LANES; ++l) {
          [[unroll]] for (uint q = 0; q < DEPTH; ++q)
            LOAD_WORD(load4_w, load8_w, w_at + (l * DEPTH + q) * p.w_row, b[q]);
          multiply_tile(l);
        }
        w_at += STEP * p.w_row;
      }
    }
  }

  const uint columns = p.n - min(n0, p.n);
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint row_to = subgroupShuffle(to[i / LANES], first_lane + i % LANES);
    if (m0 + i < rows) store_columns(acc[i], row_to + n0, columns);
  }
}
