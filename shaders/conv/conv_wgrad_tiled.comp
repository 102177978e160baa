//! buffers: x:T:read w:T:read y:f32:write
//! types: T = f32 f16
//! params: ConvTileParams
//! reference: none
//! local: 2*TILE
//! grid: groups
//! define: TILE=32,64,128
//! optimize: no
// The weight's gradient, transposed, as an implicit matrix product on GPUs: sums over pixels of elements of x (the left
// panels' lines: taps and their runs) times those of w (the result's gradient).
layout(constant_id = 0) const bool WORDS_X = true;  // pixels of x consist of whole words of 16 bytes
layout(constant_id = 1) const bool WORDS_W = true;  // those of w
#define LEFT_ALONG_K false
#define RIGHT_ALONG_K false
#define LEFT_WHOLE WORDS_X
#define RIGHT_WHOLE WORDS_W
#include "conv/conv_pixel.glsl"
#include "matrix/tile.glsl"

uint rows, m0, n0, group, part, k0, end;

// The places of this thread's lines of the left panels, relative to the pixel. All its words have the same.
int down[WORD], right_of[WORD];

void at_panel(uint k) { k0 = k; }

void left_word(uint w, uint line, uint k, out Word word) {
  const uint number = k0 + k;
  const Pixel pixel = pixel_at(number);
  const int top = int(pixel.i * p.stride_h) + p.origin_h, left_edge = int(pixel.j * p.stride_w) + p.origin_w;
  word.inside = 0;
  [[unroll]] for (uint i = 0; i < (WORDS_X ? 1 : WORD); ++i) {
    const uint h = uint(top + down[i]), v = uint(left_edge + right_of[i]);
    const bool is_inside = number < end && h < p.in_h && v < p.in_row;
    word.is_inside = is_inside;
    word.inside |= uint(is_inside) << i;
    const uint at = is_inside ? group * p.x_group + (pixel.image * p.in_h + h) * p.in_row + v : 0;
    if (WORDS_X)
      word.whole = word_of(x_uvec4, p.offset[0] + at);
    else
      word.element[i] = bits_x(at);
  }
}

void right_word(uint w, uint line, uint k, out Word word) {
  const uint at = group * p.w_group + min(k0 + k, end - 1) * p.w_row, n = n0 + line;
  if (WORDS_W) {
    word.is_inside = k0 + k < end;
    word.whole = word_of(w_uvec4, p.offset[1] + at + min(n, p.n - 1));
  } else {
    word.inside = k0 + k < end ? (1u << WORD) - 1u : 0;
    [[unroll]] for (uint i = 0; i < WORD; ++i) word.element[i] = bits_w(at + min(n + i, p.n - 1));
  }
}

void store_part(uint row, uint column, vec4 v) {
  const uint m = m0 + row, n = n0 + column;
  if (m >= rows || n >= p.n) return;
  const uint to = group * p.y_group + part * p.y_image + m * p.y_w + n;
  if (WORDS_W) {
    store4_y(to, v);
  } else {
    [[unroll]] for (uint i = 0; i < 4; ++i)
      if (n + i < p.n) store_y(to + i, v[i]);
  }
}

void main() {
  rows = p.taps_h * p.taps_w * p.run;
  const uint tiles_m = (rows + TILE - 1) / TILE, tiles_n = (p.n + TILE - 1) / TILE;
  const uint tile = group_id() / tiles_m, z = tile / tiles_n;
  if (z >= p.groups * p.splits) return;
  part = z % p.splits;
  group = z / p.splits;
  m0 = group_id() % tiles_m * TILE;
  n0 = tile % tiles_n * TILE;
  [[unroll]] for (uint i = 0; i < (WORDS_X ? 1 : WORD); ++i) {
    const uint row = min(m0 + word_place(0, LEFT_ALONG_K).x + i, rows - 1), tap = row / p.run;
    down[i] = int(tap / p.taps_w) * p.step_h;
    right_of[i] = int(tap % p.taps_w) * p.step_w + int(row % p.run);
  }
  end = min((part + 1) * p.k_chunk, p.images * p.rows_h * p.rows_w);
  make_tile(part * p.k_chunk, end);
}
