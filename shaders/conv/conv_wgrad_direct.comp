//! buffers: x:T:read dy:T:read dw:f32:write
//! types: T = f32 f16
//! params: Conv2dParams
//! reference: none
//! local: 64
// conv2d_wgrad of any shape, in parts of line_chunk lines of the output.
void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  // Threads lie across the outputs, which are contiguous in both images.
  const uint channels = p.in_c / p.groups, taps = p.kernel_h * p.kernel_w;
  const uint oc = i % p.out_c, c = i / p.out_c % channels;
  const uint kw = i / p.out_c / channels % p.kernel_w;
  const uint kh = i / p.out_c / channels / p.kernel_w % p.kernel_h;
  const uint part = i / p.out_c / channels / taps;
  const uint ic = oc / (p.out_c / p.groups) * channels + c;
  const uint last = min((part + 1) * p.line_chunk, p.batch * p.out_h);
  float sum = 0.0;
  for (uint line = part * p.line_chunk; line < last; ++line) {
    const uint ih = line % p.out_h * p.stride_h + kh * p.dilation_h - p.pad_h;  // wraps below zero
    if (ih >= p.in_h) continue;
    const uint from = (line / p.out_h * p.in_h + ih) * p.in_w;
    for (uint ow = 0; ow < p.out_w; ++ow) {
      const uint iw = ow * p.stride_w + kw * p.dilation_w - p.pad_w;
      if (iw >= p.in_w) continue;
      sum += load_x((from + iw) * p.in_c + ic) * load_dy((line * p.out_w + ow) * p.out_c + oc);
    }
  }
  store_dw((((part * p.out_c + oc) * p.kernel_h + kh) * p.kernel_w + kw) * channels + c, sum);
}
