// A photograph in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rw {

// Eight bits a channel, rows from the top.
struct Image {
  int height = 0, width = 0;    // pixels
  std::vector<uint8_t> pixels;  // RGB, [height, width, 3]
};

// The size of a picture as it is stored, in pixels.
struct ImageSize {
  int height = 0, width = 0;  // rows and columns
};

// Throws FileError if the file `name` of `stored` bytes claims to hold more than pictures do: a
// side of more than 65535 pixels, more than 1 GiB, or more than 32 MiB and 200 times its own size.
// Memory for pixels is taken after this check.
void check_image_size(uint64_t height, uint64_t width, uint64_t stored, const std::string& name);

// The tag Orientation of EXIF data: a TIFF header and its first directory. It is 1 (as stored) if
// the tag is missing or makes no sense.
int exif_orientation(std::span<const uint8_t> tiff);

// The upright picture, given the number that EXIF has for its orientation: 1 to 8.
Image oriented(Image image, int orientation);

}  // namespace rw
