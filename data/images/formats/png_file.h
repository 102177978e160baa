// PNG files, by libpng.
#pragma once

#include <span>

#include "../image.h"

namespace rw {

// Turns grey, palettes and 16 bits into RGB of 8 bits; transparent pixels lie on white. Turns
// pictures as their EXIF data say. Throws FileError with `name`.
Image decode_png(std::span<const uint8_t> bytes, const std::string& name);
// The size in the header of a file of `stored` bytes, of which these are the first. FileError, also
// if they end before the header does.
ImageSize png_size(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name);

}  // namespace rw
