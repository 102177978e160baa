//! buffers: x:T:read w:T:read y:U:write
//! types: T,U = f32,f32 f16,f16 f16,f32
//! params: ConvTileParams
//! cpu: none
//! local: 256
//! grid: groups
//! define: TILE=64
// Convolution (forward, and the input's gradient) as an implicit matrix product on GPUs.
#include "tile_shared.glsl"

void main() {
  const uint rows = p.images * p.rows_h * p.rows_w;
  const uint tiles_m = (rows + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE;
  const uint tile = group_id() / tiles_m, group = tile / tiles_n;
  if (group >= p.groups) return;
  const uint m0 = group_id() % tiles_m * TILE, n0 = tile % tiles_n * TILE;
  const uint thread = gl_LocalInvocationID.x, k = thread % TILE_K;

  // Each thread loads the same rows in every round.
  uint base[TILE / 16];
  int top[TILE / 16], left_edge[TILE / 16];
  [[unroll]] for (uint t = 0; t < TILE / 16; ++t) {
    const uint row = min(m0 + t * 16 + thread / TILE_K, rows - 1);
    const uint j = row % p.rows_w, i = row / p.rows_w % p.rows_h, image = row / p.rows_w / p.rows_h;
    base[t] = group * p.x_group + image * p.in_h * p.in_row;
    top[t] = int(i * p.stride_h) + p.origin_h;
    left_edge[t] = int(j * p.stride_w) + p.origin_w;
  }

  clear_tile();
  uint w_at = group * p.w_group + n0;
  for (uint th = 0; th < p.taps_h; ++th) {
    for (uint tw = 0; tw < p.taps_w; ++tw) {
      for (uint e = 0; e < p.run; e += TILE_K) {
        [[unroll]] for (uint t = 0; t < TILE / 16; ++t) {
          const uint h = uint(top[t] + int(th) * p.step_h);
          const uint v = uint(left_edge[t] + int(tw) * p.step_w + int(e + k));
          const bool inside = h < p.in_h && v < p.in_row && e + k < p.run;
          put_left(t * 16 + thread / TILE_K, k, inside ? load_x(base[t] + h * p.in_row + v) : 0.0);
        }
        [[unroll]] for (uint i = thread; i < TILE * TILE_K; i += 256)
          put_right(i / TILE, i % TILE, load_w(w_at + i / TILE * p.w_row + i % TILE));
        multiply_panels();
        w_at += TILE_K * p.w_row;
      }
    }
  }

  [[unroll]] for (uint i = 0; i < PER; ++i) {
    const uint m = m0 + thread_row() + i;
    const uint to = group * p.y_group + m / p.rows_w / p.rows_h * p.y_image +
                    m / p.rows_w % p.rows_h * p.y_h + m % p.rows_w * p.y_w;
    [[unroll]] for (uint j = 0; j < PER; ++j) {
      const uint n = n0 + thread_col() + j;
      if (m < rows && n < p.n) store_y(to + n, acc[i][j]);
    }
  }
}
