// Resamples parts of photographs to a model's size.
#pragma once

#include "../base/random.h"
#include "image.h"

namespace rw {

// A part of a photograph.
struct CropBox {
  double y, x, height, width;  // in pixels; it may begin and end within one
};

// The square in the middle that remains when the shorter side becomes 1 / `share` times as long as
// the model's images: torchvision resizes to 256 and crops 224, which is a share of 7/8.
CropBox centre_crop(int height, int width, double share);
// A part of 8 % (or another least share) to 100 % of the area, with an aspect ratio from 3:4 to 4:3
// (Szegedy et al. 2014).
CropBox random_crop(int height, int width, DataRandom& random, double least = 0.08);

// Writes the box as `size` x `size` pixels of [0, 255] to out [size, size, 3]: linear between
// pixels if it becomes larger, and a mean of all pixels, weighted by a triangle, if it becomes
// smaller. `mirrored` swaps left and right.
void resample(const Image& image, const CropBox& box, int size, bool mirrored, float* out);

}  // namespace rw
