// JPEG files, by libjpeg.
#pragma once

#include <span>

#include "image.h"

namespace rw {

// Baseline and progressive, grey, colour and CMYK, turned as EXIF says. It is decoded at a half, a
// quarter or an eighth of its size where its shorter side keeps at least `least_side` pixels: much
// faster, and no worse for what is made smaller anyway. 0: at its own size. Throws FileError naming
// `name`, also where data are missing or damaged.
Image decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, int least_side = 0);

}  // namespace rw
