//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: ConvPackParams
//! cpu: none
//! local: 64
//! texels: yes
// Weights in the order in which conv_subgroup and conv_tiled walk them, padded with zeros.
void main() {
  const uint i = thread_id();
  if (i >= p.total) return;
  const uint per_row = p.y_row / 4, n = i % per_row * 4, e = i / per_row % p.tap_rows;
  const uint tap = i / per_row / p.tap_rows, tw = tap % p.taps_w, th = tap / p.taps_w % p.taps_h;
  const uint group = tap / p.taps_w / p.taps_h, channel = e % p.channels;
  const uint kh = uint(p.kh0 + int(th) * p.kh_step);
  const uint kw = uint(p.kw0 + int(tw + e / p.channels) * p.kw_step);
  const uint from = group * p.x_group + channel * p.x_c + kh * p.x_kh + kw * p.x_kw;
  vec4 v = vec4(0.0);
  if (e < p.run && channel < p.x_channels) {
    [[unroll]] for (uint j = 0; j < 4; ++j)
      if (n + j < p.n) v[j] = load_x(from + (n + j) * p.x_n);
  }
  store4_y(i * 4, v);
}
