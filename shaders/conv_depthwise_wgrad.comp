//! buffers: x:T:read dy:T:read dw:f32:write
//! types: T = f32 f16
//! params: ConvDepthwiseParams
//! reference: none
//! local: 64
//! address: only
//! requires: int64
#include "depthwise.glsl"

Words dy64 = Words(address_table[1]);

word_vec dy[ROWS][COLUMNS];
word_vec sum[TAPS][TAPS];

// The tile at (top, left), zero outside.
void load_dy(uint image, uint top, uint left, uint c) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
      const bool inside = top + r < p.rows_h && left + j < p.rows_w;
      const uint pixel = (image * p.rows_h + top + r) * p.rows_w + left + j;
      const word_vec word = unpack64(dy64.data[p.offset[1] / WORD + (inside ? pixel * p.words + c : 0)]);
      dy[r][j] = inside ? word : word_vec(0.0);
    }
}

// The row that is the `place`-th of those that the tile meets, by the rows of dy that meet it.
void add_row(uint place) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint t = 0; t < TAPS; ++t)
      if (met(r, t) == place)
        [[unroll]] for (uint j = 0; j < COLUMNS; ++j)
          [[unroll]] for (uint u = 0; u < TAPS; ++u)
            sum[t][u] += span[met(j, u)] * dy[r][j];
}

void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint runs = (p.taps_w + TAPS - 1) / TAPS, blocks = (p.taps_h + TAPS - 1) / TAPS * runs;
  const uint c = i % p.words, block = i / p.words % blocks, part = i / p.words / blocks;
  const uint th = block / runs * TAPS, tw = block % runs * TAPS;
  const uint high = (p.rows_h + ROWS - 1) / ROWS;
  const uint last = min((part + 1) * p.tile_chunk, p.images * high);
  [[unroll]] for (uint t = 0; t < TAPS; ++t)
    [[unroll]] for (uint u = 0; u < TAPS; ++u) sum[t][u] = word_vec(0.0);
  for (uint tile = part * p.tile_chunk; tile < last; ++tile) {
    const uint image = tile / high, top = tile % high * ROWS;
    const int h = int(top * p.stride_h) + p.origin_h + int(th) * p.step_h;
    for (uint left = 0; left < p.rows_w; left += COLUMNS) {
      load_dy(image, top, left, c);
      [[unroll]] for (uint place = 0; place < ROW_SPAN; ++place) {
        load_span(image, h + reach(place, p.stride_h, p.step_h),
                  int(left * p.stride_w) + p.origin_w + int(tw) * p.step_w, c);
        add_row(place);
      }
    }
  }
  [[unroll]] for (uint t = 0; t < TAPS; ++t)
    [[unroll]] for (uint u = 0; u < TAPS; ++u)
      [[unroll]] for (uint e = 0; e < WORD; ++e)
        if (th + t < p.taps_h && tw + u < p.taps_w)
          store_dw((((part * p.taps_h + th + t) * p.taps_w + tw + u) * p.words + c) * WORD + e,
                   sum[t][u][e]);
}
