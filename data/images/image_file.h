// Photographs from files.
#pragma once

#include <filesystem>
#include <span>

#include "image.h"

namespace rw {

// The formats that can be read: "PNG, JPEG or WebP", the last one only if libwebp was there when
// the library was built.
std::string image_format_names();
// Whether a name ends as those of such files do, in any case of letters: .png, .jpg, .jfif, ...
bool is_image_name(const std::filesystem::path& file);

// The picture in the bytes of such a file, whose first bytes decide which it is. `name` is for
// messages. Throws FileError if it is none, or incomplete.
Image decode_image(std::span<const uint8_t> bytes, const std::string& name, int least_side = 0);
Image load_image(const std::filesystem::path& file, int least_side = 0);

// The first bytes of a photograph.
struct ImageHeader {
  ImageSize size;     // of the picture as it is stored
  uint64_t hash = 0;  // of the bytes that were read, up to 64 KiB, and their number in the file
};
// Reads as much of a file as its header takes. Throws FileError as decode_image() would for these
// bytes; what is behind them may still be missing or damaged.
ImageHeader load_image_header(const std::filesystem::path& file);

}  // namespace rw
