// Ops on images, sequences and volumes with channels last: resizing, padding, pooling in one
// dimension and to a given size. f32 or f16 (DTypeError).
#pragma once

#include "../ops.h"

namespace rw {

// How interpolate() finds an element of the result in x. nearest takes the one below, nearest_exact
// the nearest one (PyTorch's words). Between elements, linear weighs the 2 neighbours along each
// axis, and cubic 4 (Keys 1981, a = -0.75); area is adaptive_avg_pool.
enum class InterpolationMode { nearest, nearest_exact, linear, cubic, area };

// PyTorch's options; its linear, bilinear and trilinear are `linear` here. Give either size or
// scale_factor, with one entry for each axis between the first and the last, or one for all.
struct InterpolateOptions {
  std::vector<int64_t> size = {};         // of the result
  std::vector<double> scale_factor = {};  // the result's size over that of x, rounded down
  InterpolationMode mode = InterpolationMode::nearest;  // how elements are found
  bool align_corners = false;  // linear, cubic: the outermost elements lie on each other
};
//! op: interpolate
// x [N, L, C], [N, H, W, C] or [N, D, H, W, C] -> the same with other sizes between N and C. cubic
// is for images only. ShapeError, ValueError for options.
Tensor interpolate(Tensor x, const InterpolateOptions& options);

//! op: pixel_shuffle   in: any
// x [N, H, W, C r r] -> [N, H r, W r, C]: runs of r r channels become squares of r by r pixels (Shi
// et al. 2016). ShapeError unless r r divides the channels.
Tensor pixel_shuffle(Tensor x, int64_t upscale);
//! op: pixel_unshuffle   in: any
// The reverse: [N, H r, W r, C] -> [N, H, W, C r r].
Tensor pixel_unshuffle(Tensor x, int64_t downscale);

//! op: pad_mode   torch: pad
// Sizes before and after, as for the other pad(), filled as the mode says; reflect takes less than
// the axis has, circular at most as much. ShapeError. `zeros` is pad(x, before, after).
Tensor pad(Tensor x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
           PaddingMode mode);

// As Pool2dOptions, along one axis.
struct Pool1dOptions {
  int kernel = 2, stride = 2, padding = 0, dilation = 1;  // the window, in elements
  bool count_include_pad = true;                          // of avg_pool1d
};
//! op: max_pool1d avg_pool1d
// x [N, L, C] -> [N, L', C], as for max_pool2d and avg_pool2d.
Tensor max_pool1d(Tensor x, const Pool1dOptions& options);
Tensor avg_pool1d(Tensor x, const Pool1dOptions& options);

//! op: adaptive_max_pool2d adaptive_avg_pool2d
// x [N, H, W, C] -> [N, size.h, size.w, C]: place o of an axis has the largest element, or the
// mean, of x from floor(o in / size) to ceil((o + 1) in / size), as in PyTorch. ShapeError for an
// empty image.
Tensor adaptive_max_pool2d(Tensor x, Size2d size);
Tensor adaptive_avg_pool2d(Tensor x, Size2d size);
//! op: adaptive_max_pool1d adaptive_avg_pool1d
// x [N, L, C] -> [N, size, C], as for images.
Tensor adaptive_max_pool1d(Tensor x, int size);
Tensor adaptive_avg_pool1d(Tensor x, int size);

}  // namespace rw
