//! buffers: x:T:read dy:T:read dw:f32:write
//! types: T = f32 f16
//! params: ConvDirectParams
//! cpu: none
//! local: 64
// The weight's gradient of conv2d with a group per channel: partial sums [parts, taps, channels] over
// line_chunk lines of all images' outputs each. One thread makes 8 channels of TAPS taps beside each
// other of one part: dy is loaded once for them. Channels and offsets are multiples of 8.
const uint TAPS = 3;

void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint eights = p.in_c / 8, runs = (p.kernel_w + TAPS - 1) / TAPS;
  const uint c = i % eights * 8, kw = i / eights % runs * TAPS;
  const uint kh = i / eights / runs % p.kernel_h, part = i / eights / runs / p.kernel_h;
  const uint last = min((part + 1) * p.line_chunk, p.batch * p.out_h);
  vec4 lo[TAPS], hi[TAPS];
  [[unroll]] for (uint r = 0; r < TAPS; ++r) lo[r] = hi[r] = vec4(0.0);
  for (uint line = part * p.line_chunk; line < last; ++line) {
    const uint h = line % p.out_h * p.stride_h + kh * p.dilation_h - p.pad_h;  // wraps below zero
    if (h >= p.in_h) continue;
    const uint from = (line / p.out_h * p.in_h + h) * p.in_w;
    for (uint ow = 0; ow < p.out_w; ++ow) {
      vec4 dy_lo, dy_hi;
      load8_dy((line * p.out_w + ow) * p.in_c + c, dy_lo, dy_hi);
      [[unroll]] for (uint r = 0; r < TAPS; ++r) {
        const uint v = ow * p.stride_w + (kw + r) * p.dilation_w - p.pad_w;
        if (v < p.in_w) {
          vec4 x_lo, x_hi;
          load8_x((from + v) * p.in_c + c, x_lo, x_hi);
          lo[r] += x_lo * dy_lo;
          hi[r] += x_hi * dy_hi;
        }
      }
    }
  }
  [[unroll]] for (uint r = 0; r < TAPS; ++r)
    if (kw + r < p.kernel_w)
      store8_dw(((part * p.kernel_h + kh) * p.kernel_w + kw + r) * p.in_c + c, lo[r], hi[r]);
}
