// PNG files, by libpng.
#pragma once

#include <span>

#include "image.h"

namespace rw {

// Turns grey, palettes and 16 bits into RGB of 8 bits; transparent pixels lie on white. Turns
// pictures as their EXIF data say. Throws FileError with `name`.
Image decode_png(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace rw
