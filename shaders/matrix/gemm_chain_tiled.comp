//! buffers: a:T:read b:T:read s:T:read t:T:read y:T:write
//! types: T = f32 f16
//! params: GemmChainParams
//! reference: none
//! local: 2*TILE
//! grid: groups
//! define: TILE=32,64,128
//! precise: yes
//! optimize: no
// A product as gemm_tiled makes it, and the steps of a chain on its result. All tensors consist of whole words.
layout(constant_id = 3) const bool LEFT_ALONG_K = true;    // a_col is 1, else a_row
layout(constant_id = 4) const bool RIGHT_ALONG_K = false;  // b_row is 1, else b_col
#define WORDS_IN true
#define FINISHES
#include "matrix/gemm.glsl"
#include "elementwise/chain.glsl"

// Past the edges it reads the last row and columns again: loads are in no branch, so all of them go out together.
vec4 finish_part(uint row, uint column, vec4 v) {
  const uint m = m0 + row < p.m ? m0 + row : p.m - 1, n = n0 + column < p.n ? n0 + column : p.n - 4;
  return chain4(m * p.n + n, n, stored(v * p.alpha));
}

void store_part(uint row, uint column, vec4 v) {
  const uint m = m0 + row, n = n0 + column;
  if (m < p.m && n < p.n) store4_y(m * p.n + n, v);
}

void main() {
  const uint tiles_m = (p.m + TILE - 1) / TILE, tile_n = group_id() / tiles_m;
  if (tile_n * TILE >= p.n) return;
  m0 = group_id() % tiles_m * TILE;
  n0 = tile_n * TILE;
  a0 = b0 = 0;
  end = p.k;
  make_product(0);
}
