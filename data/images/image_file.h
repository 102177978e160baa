// Photographs from files.
#pragma once

#include <filesystem>
#include <span>

#include "image.h"

namespace rw {

// The picture in the bytes of a PNG or JPEG file, whose first bytes decide which it is (png_file.h,
// jpeg_file.h). `name` is for messages. Throws FileError if it is neither, or incomplete.
Image decode_image(std::span<const uint8_t> bytes, const std::string& name, int least_side = 0);
Image load_image(const std::filesystem::path& file, int least_side = 0);

}  // namespace rw
