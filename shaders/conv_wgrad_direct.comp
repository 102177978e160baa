//! buffers: x:T:read dy:T:read dw:f32:write
//! types: T = f32 f16
//! params: ConvDirectParams
//! local: 64
// conv2d_wgrad of any shape, in parts of image_chunk images.
void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint channels = p.in_c / p.groups;
  const uint c = i % channels, kw = i / channels % p.kernel_w;
  const uint kh = i / channels / p.kernel_w % p.kernel_h;
  const uint oc = i / channels / p.kernel_w / p.kernel_h % p.out_c;
  const uint part = i / channels / p.kernel_w / p.kernel_h / p.out_c;
  const uint ic = oc / (p.out_c / p.groups) * channels + c;
  const uint last = min((part + 1) * p.image_chunk, p.batch);
  float sum = 0.0;
  for (uint image = part * p.image_chunk; image < last; ++image) {
    for (uint oh = 0; oh < p.out_h; ++oh) {
      const uint ih = oh * p.stride_h + kh * p.dilation_h - p.pad_h;  // wraps below zero
      if (ih >= p.in_h) continue;
      for (uint ow = 0; ow < p.out_w; ++ow) {
        const uint iw = ow * p.stride_w + kw * p.dilation_w - p.pad_w;
        if (iw >= p.in_w) continue;
        sum += load_x(((image * p.in_h + ih) * p.in_w + iw) * p.in_c + ic) *
               load_dy(((image * p.out_h + oh) * p.out_w + ow) * p.out_c + oc);
      }
    }
  }
  store_dw(i, sum);
}
