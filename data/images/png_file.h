// PNG files, by libpng.
#pragma once

#include <span>

#include "image.h"

namespace rw {

// Grey, palettes and 16 bits become RGB of 8 bits; what is transparent lies on white. Throws
// FileError naming `name`.
Image decode_png(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace rw
