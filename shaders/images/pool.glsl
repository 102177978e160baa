// Windows of 2-d pooling over NHWC. Every kernel gives a thread 8 consecutive elements of its output, which are
// channels of one position if `channels` is a multiple of 8.
#include "common/flat.glsl"
#include "images/pixels.glsl"

// The windows follow from the sizes: [floor(o in / out), ceil((o + 1) in / out)).
layout(constant_id = 0) const bool ADAPTIVE = false;

// Returns the first input position of window o along one axis. Below 0 it wraps, to beyond the image.
uint first_of(uint o, uint stride, uint pad, uint size, uint outputs) {
  return ADAPTIVE ? o * size / outputs : o * stride - pad;
}
uint first_row(uint o) { return first_of(o, p.stride_h, p.pad_h, p.in_h, p.out_h); }
uint first_column(uint o) { return first_of(o, p.stride_w, p.pad_w, p.in_w, p.out_w); }

// Returns how many elements window o has along one axis.
uint count_of(uint o, uint kernel, uint size, uint outputs) {
  return ADAPTIVE ? ((o + 1) * size + outputs - 1) / outputs - o * size / outputs : kernel;
}
uint count_rows(uint o) { return count_of(o, p.kernel_h, p.in_h, p.out_h); }
uint count_columns(uint o) { return count_of(o, p.kernel_w, p.in_w, p.out_w); }

// Returns the windows [begin, end) whose extent covers input position x along one axis.
uvec2 windows_of(uint x, uint kernel, uint stride, uint pad, uint dilation, uint size, uint outputs) {
  if (ADAPTIVE) return uvec2(x * outputs / size, ((x + 1) * outputs + size - 1) / size);
  uint padded = x + pad, reach = (kernel - 1) * dilation;
  uint begin = padded <= reach ? 0 : (padded - reach + stride - 1) / stride;
  return uvec2(begin, min(outputs, padded / stride + 1));
}
uvec2 windows_of_row(uint h) {
  return windows_of(h, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h, p.in_h, p.out_h);
}
uvec2 windows_of_column(uint w) {
  return windows_of(w, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w, p.in_w, p.out_w);
}

// Returns the input positions [begin, end) of average window o along one axis, and in z the number that it divides by.
ivec3 average_window(uint o, uint kernel, uint stride, uint pad, uint size, uint outputs) {
  int begin = int(first_of(o, stride, pad, size, outputs));
  int end = min(begin + int(count_of(o, kernel, size, outputs)), int(size + pad));
  ivec2 inside = ivec2(max(begin, 0), min(end, int(size)));
  return ivec3(inside, p.count_include_pad != 0 ? end - begin : inside.y - inside.x);
}
ivec3 average_rows(uint o) {
  return average_window(o, p.kernel_h, p.stride_h, p.pad_h, p.in_h, p.out_h);
}
ivec3 average_columns(uint o) {
  return average_window(o, p.kernel_w, p.stride_w, p.pad_w, p.in_w, p.out_w);
}
