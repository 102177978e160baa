//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: ConvPackParams
//! cpu: none
//! local: 64
//! texels: yes
// Weights in the order in which conv_subgroup and conv_tiled walk them, padded with zeros: [tap][row][column], or
// [tap][panel][column][row of the panel] for tiles whose right factor lies along k.
void main() {
  const uint i = thread_id();
  if (i >= p.total) return;
  // Four neighbours: columns, or rows of a panel.
  const bool along_k = p.panel > 1;
  const uint per_line = (along_k ? p.panel : p.y_row) / 4, lines = along_k ? p.y_row : p.tap_rows;
  const uint in_line = i % per_line * 4, line = i / per_line % lines, rest = i / per_line / lines;
  const uint panels = along_k ? p.tap_rows / p.panel : 1, row = rest % panels * p.panel;
  const uint n = along_k ? line : in_line, first = along_k ? row + in_line : line;
  const uint tap = rest / panels, tw = tap % p.taps_w, th = tap / p.taps_w % p.taps_h, group = tap / p.taps_w / p.taps_h;
  const uint kh = uint(p.kh0 + int(th) * p.kh_step);
  vec4 v = vec4(0.0);
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    const uint e = along_k ? first + j : first, column = along_k ? n : n + j, channel = e % p.channels;
    const uint kw = uint(p.kw0 + int(tw + e / p.channels) * p.kw_step);
    if (e < p.run && channel < p.x_channels && column < p.n)
      v[j] = load_x(group * p.x_group + channel * p.x_c + kh * p.x_kh + kw * p.x_kw + column * p.x_n);
  }
  store4_y(i * 4, v);
}
