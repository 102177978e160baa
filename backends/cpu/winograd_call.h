// Convolutions of 3 x 3 pixels in Winograd's form F(2 x 2, 3 x 3), as the vector loops see them.
// Like loop_call.h, this header has no functions.
//
// Each tile of 2 x 2 pixels of y comes from 4 x 4 pixels of x. Tile and weights become 16 matrices,
// [tiles, in_c] and [in_c, out_c], whose 16 products [tiles, out_c] become y: 16 multiplications
// for each pair of channels instead of 36 (A. Lavin and S. Gray, Fast Algorithms for Convolutional
// Neural Networks, 2016). All factors of the transformations are 0, 1 and 1/2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/base/dtype.h"

namespace rw::cpu {

// y [images, out_h, out_w, out_c] of x [images, in_h, in_w, in_c]: element (0, 0) of an image of y
// reads x from (-pad_h, -pad_w) on, and pixels outside are zeros. Channels are multiples of 16.
struct Winograd {
  static constexpr int64_t depth = 256;  // the most inputs of a product
  static constexpr int64_t width = 64;   // the most outputs, or channels of a gradient, of a piece
  static constexpr int64_t weights_at_once = 32;  // outputs whose weights are a piece
  static constexpr int64_t gap = 16;  // between lines, which share few sets of the caches otherwise

  int64_t images, in_h, in_w, in_c, out_h, out_w, out_c, pad_h, pad_w;
  bool is_turned;    // weights are those of the gradient of x: [in_c, 3, 3, out_c], from the end
  int64_t tiles;     // of all images
  int64_t per_step;  // tiles that are transformed before they are multiplied
  int64_t per_part;  // tiles whose gradients of weights are added by one piece
};

// The elements of images, in the order above.
struct WinogradImages {
  const std::byte* data;
  DType dtype;
};

// The loops of a level. Pieces may run in any order, at the same time.
struct WinogradLoops {
  // Transforms the weights of 32 outputs into those of `to` [16, out_c, in_c], which lie in panels
  // as wide as registers allow.
  void (*weights)(const Winograd& p, const float* w, int64_t piece, float* to);
  // Makes the pixels of `per_step` tiles, `width` channels of them. `scratch` has room for
  // 16 per_step (width + min(in_c, depth) + gap) floats.
  void (*images)(const Winograd& p, const WinogradImages& x, const float* weights, int64_t piece,
                 float* scratch, std::byte* y, DType y_dtype);
  // Makes the gradient [out_c, 3, 3, in_c] of `width` outputs and inputs by the tiles of one part;
  // parts lie one behind the other. `scratch` has room for
  // 16 (width width + 2 per_step (width + gap)) floats.
  void (*gradient)(const Winograd& p, const WinogradImages& x, const WinogradImages& dy,
                   int64_t piece, float* scratch, float* dw);
};

}  // namespace rw::cpu
