// WebP files, by libwebp, which a build may be without (REWIND_WEBP).
#pragma once

#include <span>

#include "../image.h"

namespace rw {

// Decodes lossy and lossless files, and the first picture of an animation; transparent pixels lie
// on white. Turns pictures as their EXIF data say. Throws FileError with `name`, also if data are
// missing.
Image decode_webp(std::span<const uint8_t> bytes, const std::string& name);
// The size in the header of a file of `stored` bytes, of which these are the first. FileError, also
// if they end before the header does.
ImageSize webp_size(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name);

}  // namespace rw
