//! buffers: dy:T:read w:T:read dx:T:write
//! types: T = f32 f16
//! params: Conv2dParams
//! reference: none
//! local: 64
// conv2d_dgrad of any shape: each element of dx gathers from the outputs that read it.
void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint ic = i % p.in_c, iw = i / p.in_c % p.in_w;
  const uint ih = i / p.in_c / p.in_w % p.in_h, image = i / p.in_c / p.in_w / p.in_h;
  const uint in_channels = p.in_c / p.groups, out_channels = p.out_c / p.groups;
  const uint group = ic / in_channels, oc0 = group * out_channels;
  const uint w_oc = p.kernel_h * p.kernel_w * in_channels;
  float sum = 0.0;
  for (uint kh = 0; kh < p.kernel_h; ++kh) {
    const uint h = ih + p.pad_h - kh * p.dilation_h;  // wraps below zero
    if (int(h) < 0 || h % p.stride_h != 0 || h / p.stride_h >= p.out_h) continue;
    for (uint kw = 0; kw < p.kernel_w; ++kw) {
      const uint v = iw + p.pad_w - kw * p.dilation_w;
      if (int(v) < 0 || v % p.stride_w != 0 || v / p.stride_w >= p.out_w) continue;
      const uint from =
          ((image * p.out_h + h / p.stride_h) * p.out_w + v / p.stride_w) * p.out_c + oc0;
      const uint tap = oc0 * w_oc + (kh * p.kernel_w + kw) * in_channels + ic % in_channels;
      for (uint c = 0; c < out_channels; ++c) sum += load_dy(from + c) * load_w(tap + c * w_oc);
    }
  }
  store_dx(i, sum);
}
