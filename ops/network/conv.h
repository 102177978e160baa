// Convolutions other than conv2d (ops.h): in one and three dimensions, transposed, and with padding
// that keeps the size. Channels are last. All take f32, or f16 with sums in f32, of one dtype
// (DTypeError), and follow Autocast. They throw ShapeError if the shapes do not match or the window
// is larger than the padded input, and ValueError for options. A bias is float [O], or undefined.
#pragma once

#include "../ops.h"

namespace rw {

// The options with the padding that keeps the size of an image at a stride of 1: half of the
// window's reach before it, and the rest, one more if the reach is odd, after it (PyTorch's
// padding="same"). ValueError for a stride other than 1.
Conv2dOptions same_padding(Size2d kernel, Conv2dOptions options = {});

// As Conv2dOptions, along one axis.
struct Conv1dOptions {
  int stride = 1, padding = 0, dilation = 1;      // the window, in elements
  int groups = 1;                                 // runs of channels that are convolved apart
  bool bias = true;                               // of the module Conv1d
  std::optional<int> padding_end = {};            // behind the sequence, where it is not `padding`
  PaddingMode padding_mode = PaddingMode::zeros;  // the values in the padding
};
//! op: conv1d   autocast: low
// x [N, L, C], weight [O, K, C / groups] -> [N, L', O], with sizes as for conv2d, which runs on
// views.
Tensor conv1d(Tensor x, Tensor weight, Tensor bias = {}, const Conv1dOptions& options = {});

// Depth, height and width, or one number for all.
struct Size3d {
  int d, h, w;                                 // depth, height, width
  Size3d(int all) : d(all), h(all), w(all) {}  // NOLINT: a number is meant to do
  Size3d(int depth, int height, int width) : d(depth), h(height), w(width) {}
  bool operator==(const Size3d&) const = default;
};
// As Conv2dOptions, for volumes.
struct Conv3dOptions {
  Size3d stride = 1, padding = 0, dilation = 1;   // the window, in elements
  int groups = 1;                                 // runs of channels that are convolved apart
  bool bias = true;                               // of the module Conv3d
  std::optional<Size3d> padding_end = {};         // behind, below and to the right
  PaddingMode padding_mode = PaddingMode::zeros;  // the values in the padding
};
//! op: conv3d   autocast: low
// x [N, D, H, W, C], weight [O, KD, KH, KW, C / groups] -> [N, D', H', W', O], with sizes as for
// conv2d. It runs as 2-d convolutions of planes with the depth's taps beside each other as
// channels, a few samples at a time: at most 32 MiB, or one sample's worth, of such planes exist at
// once.
Tensor conv3d(Tensor x, Tensor weight, Tensor bias = {}, const Conv3dOptions& options = {});

// The options of the convolution that conv_transpose2d() reverses, and how much larger its result
// is than the smallest one that this convolution maps to x (at the bottom and right; less than
// stride or dilation).
struct ConvTranspose2dOptions {
  Size2d stride = 1, padding = 0, output_padding = 0, dilation = 1;  // in elements
  int groups = 1;    // runs of channels that are convolved apart
  bool bias = true;  // of the module ConvTranspose2d
};
//! op: conv_transpose2d   autocast: low
// x [N, H, W, I], weight [I, KH, KW, O / groups] -> [N, H', W', O], with H' = (H - 1) stride - 2
// padding + dilation (KH - 1) + output_padding + 1: the gradient of conv2d with this weight, as a
// layer (Zeiler et al. 2010). PyTorch's weight is [I, O / groups, KH, KW].
Tensor conv_transpose2d(Tensor x, Tensor weight, Tensor bias = {},
                        const ConvTranspose2dOptions& options = {});

// As ConvTranspose2dOptions, along one axis.
struct ConvTranspose1dOptions {
  int stride = 1, padding = 0, output_padding = 0, dilation = 1;  // in elements
  int groups = 1;    // runs of channels that are convolved apart
  bool bias = true;  // of the module ConvTranspose1d
};
//! op: conv_transpose1d   autocast: low
// x [N, L, I], weight [I, K, O / groups] -> [N, L', O], with sizes as for conv_transpose2d.
Tensor conv_transpose1d(Tensor x, Tensor weight, Tensor bias = {},
                        const ConvTranspose1dOptions& options = {});

}  // namespace rw
