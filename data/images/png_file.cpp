#include "data/images/png_file.h"

#include <memory>
#include <png.h>

#include "core/base/error.h"

namespace rw {

// libpng's "simplified" interface: it has its longjmp() inside, and converts everything.
Image decode_png(std::span<const uint8_t> bytes, const std::string& name) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_imagep)> owner(&png, png_image_free);
  check<FileError>(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) != 0,
                   "decode_image", "'{}' must be a whole PNG image, got one with: {}", name,
                   std::string(png.message));
  check_image_size(png.height, png.width, bytes.size(), name);
  png.format = PNG_FORMAT_RGB;
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // unless it says otherwise
  Image image{static_cast<int>(png.height), static_cast<int>(png.width), {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color white{255, 255, 255};
  const bool whole = png_image_finish_read(&png, &white, image.pixels.data(), 0, nullptr) != 0;
  check<FileError>(whole, "decode_image", "'{}' must be a whole PNG image, got one with: {}", name,
                   std::string(png.message));
  return image;
}

}  // namespace rw
