// Synthetic images, so that examples run without a download. They are written in the official
// formats once and then read by the loaders of the real data.
#pragma once

#include <filesystem>

#include "../base/dataset.h"

namespace rw {

// 32x32 RGB: disc, ring, square, frame, triangle, plus, cross, star, stripes and checker with
// random place, size, angle and colours on a noisy gradient. Labels take turns; the seed decides
// the rest.
ImageDataset draw_shapes(int count, uint64_t seed);
// 28x28 grey: digits of a stroke font with random slant, size, place, thickness and noise.
ImageDataset draw_digits(int count, uint64_t seed);

// A folder below `root` with draw_shapes() in CIFAR-10's format, made if it does not exist or is
// not whole.
std::filesystem::path synthetic_cifar10(const std::filesystem::path& root,
                                        const SyntheticSizes& sizes = {});
// The same with draw_digits in MNIST's format.
std::filesystem::path synthetic_mnist(const std::filesystem::path& root,
                                      const SyntheticSizes& sizes = {});

}  // namespace rw
