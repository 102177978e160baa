//! buffers: x:T:read w:T:read y:T:write
//! types: T = f32 f16
//! params: Conv2dParams
//! reference: none
//! local: 64
// conv2d of any shape, with one element per thread, for groups of few channels.
void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint oc = i % p.out_c, ow = i / p.out_c % p.out_w;
  const uint oh = i / p.out_c / p.out_w % p.out_h, image = i / p.out_c / p.out_w / p.out_h;
  const uint channels = p.in_c / p.groups, c0 = oc / (p.out_c / p.groups) * channels;
  float sum = 0.0;
  for (uint kh = 0; kh < p.kernel_h; ++kh) {
    const uint ih = oh * p.stride_h + kh * p.dilation_h - p.pad_h;  // wraps below zero
    if (ih >= p.in_h) continue;
    for (uint kw = 0; kw < p.kernel_w; ++kw) {
      const uint iw = ow * p.stride_w + kw * p.dilation_w - p.pad_w;
      if (iw >= p.in_w) continue;
      const uint from = ((image * p.in_h + ih) * p.in_w + iw) * p.in_c + c0;
      const uint tap = ((oc * p.kernel_h + kh) * p.kernel_w + kw) * channels;
      for (uint c = 0; c < channels; ++c) sum += load_x(from + c) * load_w(tap + c);
    }
  }
  store_y(i, sum);
}
