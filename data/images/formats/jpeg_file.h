// JPEG files, by libjpeg.
#pragma once

#include <span>

#include "../image.h"

namespace rw {

// Decodes baseline and progressive, grey, colour and CMYK files, and turns them as EXIF says. The
// picture has a half, a quarter or an eighth of its size if its shorter side keeps at least
// `least_side` pixels: this is much faster, and no worse for pictures that are made smaller anyway.
// 0 means its own size. Throws FileError with `name`, also if data are missing or damaged.
Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, int least_side = 0);
// The size in the header of a file of `stored` bytes, of which these are the first. FileError, also
// if they end before the header does.
ImageSize jpeg_size(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name);

}  // namespace rw
