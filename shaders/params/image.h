// Pooling, other sizes and borders of images (NHWC).

// max_pool2d: y and tap (u8 or i32: which place of its window, row by row, has the first maximum).
// max_pool2d_grad: dy, tap, dx (gathers: each input looks at the windows that cover it).
// avg_pool2d: x, y. avg_pool2d_grad: dy, dx. Eight elements of the last binding's tensor (y for
// max_pool2d) per thread. max: a NaN wins; an empty window gives -inf and tap -1 (255 in u8). avg
// divides by the window's size clipped to the padded input (count_include_pad) or to the input;
// dilation must be 1. variant {adaptive}: 1: window o of an axis is the elements from floor(o * in
// / out) to ceil((o + 1) * in / out), `kernel` no smaller than any (places of the window count by
// it), padding 0, dilation 1, in * out < 2^32. Windows have at most 8191 elements.
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
// resample2d: x [batch, in_h, in_w, channels] -> y [batch, out_h, out_w, channels];
// resample2d_grad: dy -> dx (gathers: each input looks at the outputs that read it). variant
// {RESAMPLE_*, align, whole}. align 1: o scale, of linear and cubic. whole 1: channels and offsets
// are multiples of 8, 8 channels per thread; else one element per thread. An input is read by at
// most 255 x 255 outputs, or by 65535 along one axis when the other has as many outputs as inputs.
struct ResampleParams {
  uint offset[2];
  uint batch, in_h, in_w, channels, out_h, out_w;
  float scale_h, scale_w;  // input positions per output
};

// What surrounds an axis: PaddingMode without zeros.
#define PAD_REFLECT 1
#define PAD_REPLICATE 2
#define PAD_CIRCULAR 3
// pad_axis: x [outer, size, inner] -> y [outer, padded, inner], x from `before` on. pad_axis_grad:
// dy -> dx (gathers). variant {PAD_*, whole}, whole as in resample2d, of inner. before and after
// are below size for reflect, at most size for circular, at most 32767 for replicate.
struct PadAxisParams {
  uint offset[2];
  uint outer, size, padded, inner, before;
};
