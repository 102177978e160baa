#include "data/images/image.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace rw {

void check_image_size(uint64_t height, uint64_t width, uint64_t stored, const std::string& name) {
  constexpr uint64_t longest = 65535, most = uint64_t{1} << 30;
  constexpr uint64_t floor = uint64_t{32} << 20, most_inflation = 200;
  check<FileError>(height > 0 && width > 0 && height <= longest && width <= longest, "decode_image",
                   "'{}' must be 1 to {} pixels high and wide, got {} x {}; make it smaller", name,
                   longest, height, width);
  const uint64_t bytes = height * width * 3;
  check<FileError>(bytes <= most, "decode_image",
                   "'{}' must hold at most 1 GiB of pixels, got {} x {}; make it smaller", name,
                   height, width);
  check<FileError>(
      bytes <= floor || bytes / most_inflation <= stored, "decode_image",
      "'{}' says that its {} bytes are {} x {} pixels, which no photograph is: at most "
      "32 MiB or {} times its bytes are unpacked",
      name, stored, height, width, most_inflation);
}

int exif_orientation(std::span<const uint8_t> tiff) {
  const auto begins_with = [&](std::string_view text) {
    return tiff.size() >= 8 && std::equal(text.begin(), text.end(), tiff.begin());
  };
  const bool little = begins_with({"II*\0", 4});
  if (!little && !begins_with({"MM\0*", 4})) return 1;
  // Reads numbers of 1, 2 or 4 bytes; bytes beyond the end are zeros.
  const auto number = [&](size_t at, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const size_t place = at + (little ? bytes - 1 - i : i);
      value = value << 8 | (place < tiff.size() ? tiff[place] : 0);
    }
    return value;
  };
  // The types of TIFF that are integers, by their bytes: SBYTE, SHORT and SSHORT, LONG, SLONG and
  // IFD. The standard has SHORT here, and cameras also write others.
  const auto bytes_of = [](uint32_t type) -> size_t {
    if (type == 6) return 1;
    if (type == 3 || type == 8) return 2;
    return type == 4 || type == 9 || type == 13 ? 4 : 0;
  };
  const size_t directory = number(4, 4), entries = number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return 1;
    constexpr uint32_t orientation = 0x112;
    const size_t bytes = bytes_of(number(entry + 2, 2)), count = number(entry + 4, 4);
    if (number(entry, 2) != orientation || bytes == 0 || count == 0) continue;
    const size_t place = bytes * count <= 4 ? entry + 8 : number(entry + 8, 4);  // of the first one
    return static_cast<int>(number(place, bytes));
  }
  return 1;
}

Image oriented(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  // Whether rows and columns of the stored picture count backwards, and whether they swap places.
  const bool rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool columns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool swapped = orientation >= 5;
  Image result{swapped ? image.width : image.height, swapped ? image.height : image.width, {}};
  result.pixels.resize(image.pixels.size());
  uint8_t* out = result.pixels.data();
  for (int y = 0; y < result.height; ++y) {
    for (int x = 0; x < result.width; ++x, out += 3) {
      const int row = swapped ? x : y, column = swapped ? y : x;
      const auto from_y = static_cast<size_t>(rows ? image.height - 1 - row : row);
      const auto from_x = static_cast<size_t>(columns ? image.width - 1 - column : column);
      const size_t at = from_y * static_cast<size_t>(image.width) + from_x;
      std::copy_n(&image.pixels[3 * at], 3, out);
    }
  }
  return result;
}

}  // namespace rw
