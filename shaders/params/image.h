// Pooling, other sizes and borders of images (NHWC).

// max_pool2d: writes y and tap (u8 or i32): the place, row by row, of the first maximum in its
// window. A NaN wins; an empty window gives -inf and tap -1 (255 in u8).
//
// max_pool2d_grad: bindings dy, tap, dx. Each input looks at the windows that cover it.
//
// avg_pool2d: bindings x, y; avg_pool2d_grad: dy, dx. The divisor is the window's size, clipped to
// the padded input (count_include_pad) or to the input. dilation must be 1.
//
// A thread handles eight elements of the last binding's tensor (of y for max_pool2d). The variant
// is {adaptive}. With 1, window o of an axis is the elements from floor(o * in / out) to ceil((o +
// 1) * in / out); `kernel` is at least as large as every window, and taps count places by it;
// padding is 0, dilation 1, and in * out < 2^32. Windows have at most 8191 elements.
struct PoolParams {
  uint offset[3];
  uint batch, in_h, in_w, channels, out_h, out_w;
  uint kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  uint count_include_pad;
};

// ---- other sizes and borders (NHWC) ----------------------------------------------------------
// How an output finds its input positions along an axis (ops/network/vision.h).
#define RESAMPLE_NEAREST 0        // floor(o scale)
#define RESAMPLE_NEAREST_EXACT 1  // floor((o + 1/2) scale)
#define RESAMPLE_LINEAR 2         // the 2 around max(0, (o + 1/2) scale - 1/2), or o scale
#define RESAMPLE_CUBIC 3          // the 4 around (o + 1/2) scale - 1/2, or o scale
// resample2d: x [batch, in_h, in_w, channels] -> y [batch, out_h, out_w, channels].
// resample2d_grad: dy -> dx; each input looks at the outputs that read it.
//
// The variant is {RESAMPLE_*, align, whole}. With align 1, linear and cubic use the position o
// scale. With whole 1, channels and offsets are multiples of 8, and a thread handles 8 channels;
// otherwise it handles one element. At most 255 x 255 outputs read an input, or 65535 along one
// axis if the other has as many outputs as inputs.
struct ResampleParams {
  uint offset[2];
  uint batch, in_h, in_w, channels, out_h, out_w;
  float scale_h, scale_w;  // input positions per output
};

// The values that surround an axis: PaddingMode without zeros.
#define PAD_REFLECT 1
#define PAD_REPLICATE 2
#define PAD_CIRCULAR 3
// pad_axis: x [outer, size, inner] -> y [outer, padded, inner], in which x begins at `before`.
// pad_axis_grad: dy -> dx; each input looks at the outputs that read it. The variant is {PAD_*,
// whole}; whole is as in resample2d, for inner. before and after are below size for reflect, at
// most size for circular, at most 32767 for replicate.
struct PadAxisParams {
  uint offset[2];
  uint outer, size, padded, inner, before;
};
