//! buffers: x:T:read w:T:read y:f32:write
//! types: T = f32 f16
//! params: ConvTileParams
//! cpu: none
//! local: 256
//! grid: groups
//! define: TILE=64
// The weight's gradient, transposed, as an implicit matrix product on GPUs.
#include "tile_shared.glsl"

void main() {
  const uint rows = p.taps_h * p.taps_w * p.run, pixels = p.images * p.rows_h * p.rows_w;
  const uint tiles_m = (rows + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE;
  const uint tile = group_id() / tiles_m, z = tile / tiles_n;
  if (z >= p.groups * p.splits) return;
  const uint part = z % p.splits, group = z / p.splits;
  const uint m0 = group_id() % tiles_m * TILE, n0 = tile % tiles_n * TILE;
  const uint thread = gl_LocalInvocationID.x;

  // Every thread loads one row (or column) of the panels at several k.
  const uint line = thread % TILE, k_first = thread / TILE;
  const uint row = min(m0 + line, rows - 1), tap = row / p.run;
  const int down = int(tap / p.taps_w) * p.step_h;
  const int right_of = int(tap % p.taps_w) * p.step_w + int(row % p.run);

  clear_tile();
  const uint end = min((part + 1) * p.k_chunk, pixels);
  for (uint k0 = part * p.k_chunk; k0 < end; k0 += TILE_K) {
    [[unroll]] for (uint k = k_first; k < TILE_K; k += 256 / TILE) {
      const uint pixel = k0 + k;
      const uint i = pixel / p.rows_w % p.rows_h, image = pixel / p.rows_w / p.rows_h;
      const uint h = uint(int(i * p.stride_h) + p.origin_h + down);
      const uint v = uint(int(pixel % p.rows_w * p.stride_w) + p.origin_w + right_of);
      const bool inside = pixel < end && h < p.in_h && v < p.in_row;
      const uint at = group * p.x_group + (image * p.in_h + h) * p.in_row + v;
      put_left(line, k, inside ? load_x(at) : 0.0);
      const bool real = pixel < end && n0 + line < p.n;
      put_right(k, line, real ? load_w(group * p.w_group + pixel * p.w_row + n0 + line) : 0.0);
    }
    multiply_panels();
  }

  const uint y0 = group * p.y_group + part * p.y_image;
  [[unroll]] for (uint i = 0; i < PER; ++i) {
    const uint m = m0 + thread_row() + i;
    [[unroll]] for (uint j = 0; j < PER; ++j) {
      const uint n = n0 + thread_col() + j;
      if (m < rows && n < p.n) store_y(y0 + m * p.y_w + n, acc[i][j]);
    }
  }
}
