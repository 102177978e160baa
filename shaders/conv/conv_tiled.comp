//! buffers: x:T:read w:T:read y:U:write
//! types: T,U = f32,f32 f16,f16 f16,f32
//! params: ConvTileParams
//! reference: none
//! local: 2*TILE
//! grid: groups
//! define: TILE=32,64,128
//! optimize: no
// Convolution (forward, and the input's gradient) as an implicit matrix product on GPUs: the left panels are gathered
// from the image, a run of neighbouring elements of its rows at a time, at most TILE_K of them.
layout(constant_id = 0) const bool WORDS_IN = true;   // pixels of x consist of whole words of 16 bytes
layout(constant_id = 1) const bool WORDS_OUT = true;  // those of y consist of words of 4 elements
#define LEFT_ALONG_K true
#ifdef KHR_MATRICES
#define RIGHT_ALONG_K true
#else
#define RIGHT_ALONG_K false
#endif
#define LEFT_WHOLE WORDS_IN
#define RIGHT_WHOLE true
#include "conv/conv_pixel.glsl"
#include "matrix/tile.glsl"

uint rows, m0, n0, group, part;

// The places in the image, at the first tap, where the words of this thread begin.
uint image_at[WORDS];
int top[WORDS], left_edge[WORDS];

// The panels that are fetched: their tap, its first element, and the first row of w.
uint tap_h, tap_w, first, w_row;

void at_panel(uint k) {
  if (k == w_row) return;
  w_row = k;
  first += TILE_K;
  if (first < p.run) return;
  first = 0;
  if (++tap_w < p.taps_w) return;
  tap_w = 0;
  ++tap_h;
}

void left_word(uint w, uint line, uint k, out Word word) {
  const uint h = uint(top[w] + int(tap_h) * p.step_h), e = first + k;
  const uint v = uint(left_edge[w] + int(tap_w) * p.step_w + int(e));
  const uint at = image_at[w] + h * p.in_row + v;
  if (WORDS_IN) {
    word.is_inside = h < p.in_h && v < p.in_row && e < p.run;
    word.whole = word_of(x_uvec4, p.offset[0] + (word.is_inside ? at : 0));
  } else {
    word.inside = 0;
    [[unroll]] for (uint i = 0; i < WORD; ++i) {
      const bool is_inside = h < p.in_h && v + i < p.in_row && e + i < p.run;
      word.element[i] = bits_x(is_inside ? at + i : 0);
      word.inside |= uint(is_inside) << i;
    }
  }
}

// conv_pack has padded w to whole tiles, and put the TILE_K rows of a panel together if they lie along k.
void right_word(uint w, uint line, uint k, out Word word) {
  const uint panel = p.offset[1] + group * p.w_group + w_row * p.w_row;
  word.is_inside = true;
  word.whole = word_of(w_uvec4, panel + (RIGHT_ALONG_K ? (n0 + line) * TILE_K + k : k * p.w_row + n0 + line));
}

void store_part(uint row, uint column, vec4 v) {
  const uint m = m0 + row, n = n0 + column;
  if (m >= rows || n >= p.n) return;
  const Pixel at = pixel_at(m);
  const uint to =
      group * p.y_group + (part * p.images + at.image) * p.y_image + at.i * p.y_h + at.j * p.y_w + n;
  if (WORDS_OUT) {
    store4_y(to, v);
  } else {
    [[unroll]] for (uint i = 0; i < 4; ++i)
      if (n + i < p.n) store_y(to + i, v[i]);
  }
}

void main() {
  rows = p.images * p.rows_h * p.rows_w;
  const uint tiles_m = (rows + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE;
  const uint tile = group_id() / tiles_m, z = tile / tiles_n;
  if (z >= p.groups * p.splits) return;
  part = z % p.splits;
  group = z / p.splits;
  m0 = group_id() % tiles_m * TILE;
  n0 = tile % tiles_n * TILE;
  [[unroll]] for (uint w = 0; w < WORDS; ++w) {
    const Pixel at = pixel_at(min(m0 + word_place(w, LEFT_ALONG_K).x, rows - 1));
    image_at[w] = group * p.x_group + at.image * p.in_h * p.in_row;
    top[w] = int(at.i * p.stride_h) + p.origin_h;
    left_edge[w] = int(at.j * p.stride_w) + p.origin_w;
  }
  const uint tap_rows = (p.run + TILE_K - 1) / TILE_K * TILE_K, tap = part * p.k_chunk / tap_rows;
  tap_h = tap / p.taps_w;
  tap_w = tap % p.taps_w;
  w_row = part * p.k_chunk;
  first = w_row % tap_rows;
  make_tile(w_row, min(w_row + p.k_chunk, p.taps_h * p.taps_w * tap_rows));
}
