//! buffers: x:T:read w:T:read y:T:write
//! types: T = f32 f16
//! params: ConvDirectParams
//! cpu: none
//! local: 64
// conv2d with a group per channel, or with GRADIENT its gradient dy, w -> dx; w is [taps, channels].
// One thread makes 8 channels of COLUMNS pixels beside each other: each weight is loaded once for
// them. Channels and offsets are multiples of 8.
layout(constant_id = 0) const uint GRADIENT = 0;  //! 0 1
const uint COLUMNS = 4;

// Where tap k of position o of the result lies along an axis of `size` elements; beyond it if nowhere.
uint met_by(uint o, uint k, uint stride, uint pad, uint dilation, uint size) {
  if (GRADIENT == 0) return o * stride + k * dilation - pad;  // wraps below zero
  uint reach = o + pad - k * dilation;
  if (stride == 1) return reach;  // without divisions; it wraps, too
  return int(reach) < 0 || reach % stride != 0 ? size : reach / stride;
}

void main() {
  const uint i = thread_id();
  if (i >= p.n) return;
  const uint height = GRADIENT == 1 ? p.in_h : p.out_h, width = GRADIENT == 1 ? p.in_w : p.out_w;
  const uint from_h = GRADIENT == 1 ? p.out_h : p.in_h, from_w = GRADIENT == 1 ? p.out_w : p.in_w;
  const uint eights = p.in_c / 8, strips = (width + COLUMNS - 1) / COLUMNS;
  const uint c = i % eights * 8, left = i / eights % strips * COLUMNS;
  const uint line = i / eights / strips, image = line / height, row = line % height;
  vec4 lo[COLUMNS], hi[COLUMNS];
  [[unroll]] for (uint r = 0; r < COLUMNS; ++r) lo[r] = hi[r] = vec4(0.0);
  for (uint kh = 0; kh < p.kernel_h; ++kh) {
    const uint h = met_by(row, kh, p.stride_h, p.pad_h, p.dilation_h, from_h);
    if (h >= from_h) continue;
    const uint from = (image * from_h + h) * from_w;
    for (uint kw = 0; kw < p.kernel_w; ++kw) {
      vec4 w_lo, w_hi;
      load8_w((kh * p.kernel_w + kw) * p.in_c + c, w_lo, w_hi);
      [[unroll]] for (uint r = 0; r < COLUMNS; ++r) {
        const uint v = met_by(left + r, kw, p.stride_w, p.pad_w, p.dilation_w, from_w);
        if (v < from_w) {
          vec4 x_lo, x_hi;
          load8_x((from + v) * p.in_c + c, x_lo, x_hi);
          lo[r] += x_lo * w_lo;
          hi[r] += x_hi * w_hi;
        }
      }
    }
  }
  [[unroll]] for (uint r = 0; r < COLUMNS; ++r)
    if (left + r < width) store8_y((line * width + left + r) * p.in_c + c, lo[r], hi[r]);
}
