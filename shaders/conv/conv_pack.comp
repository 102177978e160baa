//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: ConvPackParams
//! reference: none
//! local: 64
// Packs weights in the order in which conv_subgroup and conv_tiled walk them, padded with zeros: [tap][row][column], or
// [tap][panel][column][row of the panel] for tiles whose right factor lies along k.
layout(constant_id = 0) const bool ALONG_K = false;

void main() {
  const uint i = thread_id();
  if (i >= p.total) return;
  // Four neighbours: columns, or rows of a panel.
  const uint per_line = (ALONG_K ? p.panel : p.y_row) / 4, lines = ALONG_K ? p.y_row : p.tap_rows;
  const uint in_line = i % per_line * 4, line = i / per_line % lines, rest = i / per_line / lines;
  const uint panels = ALONG_K ? p.tap_rows / p.panel : 1;
  const uint row = ALONG_K ? rest % panels * p.panel + in_line : line, column = ALONG_K ? line : in_line;
  const uint tap = rest / panels, tw = tap % p.taps_w, th = tap / p.taps_w % p.taps_h;
  const uint group = tap / p.taps_w / p.taps_h, kh = uint(p.kh0 + int(th) * p.kh_step);
  vec4 v = vec4(0.0);
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    const uint e = ALONG_K ? row + j : row, n = ALONG_K ? column : column + j, channel = e % p.channels;
    const uint kw = uint(p.kw0 + int(tw + e / p.channels) * p.kw_step);
    if (e < p.run && channel < p.x_channels && n < p.n)
      v[j] = load_x(group * p.x_group + channel * p.x_c + kh * p.x_kh + kw * p.x_kw + n * p.x_n);
  }
  store4_y(i * 4, v);
}
