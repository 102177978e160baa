// Windows of 2-d pooling over NHWC. Every kernel gives a thread 8 consecutive elements of its output;
// they are one position's channels when `channels` is a multiple of 8.
#include "flat.glsl"

struct Position {
  uint image, h, w, c;
};

// Element i of [batch, height, width, channels].
Position position(uint i, uint height, uint width) {
  uint pixel = i / p.channels, row = pixel / width, image = row / height;
  return Position(image, row - image * height, pixel - row * width, i - pixel * p.channels);
}

uint input_at(Position at, uint h, uint w) {
  return ((at.image * p.in_h + h) * p.in_w + w) * p.channels + at.c;
}
uint output_at(Position at, uint h, uint w) {
  return ((at.image * p.out_h + h) * p.out_w + w) * p.channels + at.c;
}

// The windows whose extent covers input position x along one axis: [begin, end).
uvec2 windows_of(uint x, uint kernel, uint stride, uint pad, uint dilation, uint outputs) {
  uint padded = x + pad, reach = (kernel - 1) * dilation;
  uint begin = padded <= reach ? 0 : (padded - reach + stride - 1) / stride;
  return uvec2(begin, min(outputs, padded / stride + 1));
}
uvec2 windows_of_row(uint h) {
  return windows_of(h, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h, p.out_h);
}
uvec2 windows_of_column(uint w) {
  return windows_of(w, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w, p.out_w);
}

// Input positions [begin, end) of average window o along one axis, and in z what it counts.
ivec3 average_window(uint o, uint kernel, uint stride, uint pad, uint size) {
  int begin = int(o * stride) - int(pad), end = min(begin + int(kernel), int(size + pad));
  ivec2 inside = ivec2(max(begin, 0), min(end, int(size)));
  return ivec3(inside, p.count_include_pad != 0 ? end - begin : inside.y - inside.x);
}
ivec3 average_rows(uint o) { return average_window(o, p.kernel_h, p.stride_h, p.pad_h, p.in_h); }
ivec3 average_columns(uint o) { return average_window(o, p.kernel_w, p.stride_w, p.pad_w, p.in_w); }
