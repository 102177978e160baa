//! buffers: x:T:read w:T:read y:T:write
//! types: T = f32 f16
//! params: ConvDepthwiseParams
//! reference: none
//! local: 64
//! address: only
//! requires: int64
#include "depthwise.glsl"
layout(constant_id = 1) const bool WHOLE = true;  // taps are multiples of TAPS

Words w64 = Words(address_table[1]);
Words y64 = Words(address_table[2]);

word_vec weight[TAPS][TAPS];
word_vec sum[ROWS][COLUMNS];

// The taps from (th, tw) on; those beyond the kernel are any.
void load_weight(uint th, uint tw, uint c) {
  [[unroll]] for (uint t = 0; t < TAPS; ++t)
    [[unroll]] for (uint u = 0; u < TAPS; ++u) {
      const int k = p.k_first + int(min(th + t, p.taps_h - 1)) * p.k_h +
                    int(min(tw + u, p.taps_w - 1)) * p.k_w;
      weight[t][u] = unpack64(w64.data[uint(k) * p.words + c]);
    }
}

// The row that is the `place`-th of those that the tile meets, by the taps that meet it.
void add_row(uint place, uint taps_h, uint taps_w) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint t = 0; t < TAPS; ++t)
      if (met(r, t) == place)
        [[unroll]] for (uint i = 0; i < COLUMNS; ++i)
          [[unroll]] for (uint u = 0; u < TAPS; ++u)
            if (WHOLE || (t < taps_h && u < taps_w)) sum[r][i] += span[met(i, u)] * weight[t][u];
}

void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint wide = (p.rows_w + COLUMNS - 1) / COLUMNS, high = (p.rows_h + ROWS - 1) / ROWS;
  const uint c = i % p.words, left = i / p.words % wide * COLUMNS;
  const uint top = i / p.words / wide % high * ROWS, image = i / p.words / wide / high;
  const int h = int(top * p.stride_h) + p.origin_h, v = int(left * p.stride_w) + p.origin_w;
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint j = 0; j < COLUMNS; ++j) sum[r][j] = word_vec(0.0);
  for (uint th = 0; th < p.taps_h; th += TAPS)
    for (uint tw = 0; tw < p.taps_w; tw += TAPS) {
      load_weight(th, tw, c);
      [[unroll]] for (uint place = 0; place < ROW_SPAN; ++place) {
        load_span(image, h + int(th) * p.step_h + reach(place, p.stride_h, p.step_h),
                  v + int(tw) * p.step_w, c);
        add_row(place, p.taps_h - th, p.taps_w - tw);
      }
    }
  const uint to = p.offset[2] / WORD + image * p.y_image + top * p.y_h + left * p.y_w + c;
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint j = 0; j < COLUMNS; ++j)
      if (top + r < p.rows_h && left + j < p.rows_w)
        y64.data[to + r * p.y_h + j * p.y_w] = pack64(sum[r][j]);
}
