// Photographs as Pillow reads them: orientations, WebP.
#include <doctest/doctest.h>

#include <set>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/images/image_file.h"
#include "tests/data/photo_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace rw::test;

namespace {

std::string photo_fault(const PhotoBytes& bytes) {
  return fault_of([&] { decode_image(bytes, "photo"); });
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("photos: an orientation counts as it does for Pillow") {
  // One entry of a directory, and behind it the numbers 6 and 1.
  const auto tags = [](uint8_t type, uint8_t count, PhotoBytes value, uint8_t tag = 0x12) {
    PhotoBytes exif = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, tag, 1, type, 0, count, 0, 0, 0};
    value.resize(4);
    exif.insert(exif.end(), value.begin(), value.end());
    exif.insert(exif.end(), {0, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0});
    return exif;
  };
  const auto is_turned = [](std::vector<PhotoBytes> blocks) {
    return decode_image(jpeg_bytes(gradient(16, 32), {.exif = std::move(blocks)}), "x").height ==
           32;
  };
  // The integers among TIFF's types: BYTE, ASCII, SHORT, LONG, RATIONAL, SBYTE, UNDEFINED, SSHORT,
  // SLONG, SRATIONAL, FLOAT, DOUBLE, IFD.
  const std::set<int> integers = {3, 4, 6, 8, 9, 13};
  for (uint8_t type = 1; type < 14; ++type) {
    CAPTURE(int{type});
    CHECK(is_turned({tags(type, 1, {6})}) == integers.contains(type));
  }
  CHECK_FALSE(is_turned({tags(3, 0, {6})}));
  CHECK(is_turned({tags(3, 2, {6, 0, 1})}));
  CHECK(is_turned({tags(4, 2, {26})}));  // at a place further on
  CHECK(is_turned({tags(3, 1, {6, 0, 1})}));
  CHECK_FALSE(is_turned({tags(4, 1, {6, 0, 1})}));
  // The first of two blocks counts; one without data goes on in the second.
  const PhotoBytes one = tags(3, 1, {1}), six = tags(3, 1, {6}), other = tags(3, 1, {6}, 0x0f);
  CHECK_FALSE(is_turned({one, six}));
  CHECK(is_turned({six, one}));
  CHECK_FALSE(is_turned({other, six}));
  CHECK_FALSE(is_turned({{'X', 'X'}, six}));
  CHECK(is_turned({{}, six}));
  PhotoBytes strange = six;
  strange[2] = '+';
  CHECK_FALSE(is_turned({strange}));
}

TEST_CASE("photos: WebP has the pixels that Pillow reads") {
  struct Golden {
    const char* name;
    int height, width;
    std::string_view file, pixels;  // of Pillow's exif_transpose(), on white, in hexadecimal
  };
  const auto bytes_of = [](std::string_view hex) {
    PhotoBytes bytes;
    for (size_t i = 0; i < hex.size(); i += 2)
      bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
    return bytes;
  };
  for (const Golden& golden : std::initializer_list<Golden>{
#include "tests/goldens/photos.inc"
       }) {
    CAPTURE(golden.name);
    const PhotoBytes file = bytes_of(golden.file);
    if (!is_image_name("a.webp")) {  // libwebp was not there
      CHECK(photo_fault(file).c_str() == doctest::Contains("must be a PNG or JPEG image"));
      continue;
    }
    const Image image = decode_image(file, "x");
    CHECK(image.height == golden.height);
    CHECK(image.width == golden.width);
    CHECK(image.pixels == bytes_of(golden.pixels));
    const TemporaryFolder folder;
    write_file(folder / "a", file);
    CHECK(load_image_header(folder / "a").size.width == 7);  // as it is stored
    for (const size_t part : {size_t{13}, size_t{20}, file.size() / 2, file.size() - 4})
      CHECK(photo_fault({file.begin(), file.begin() + static_cast<ptrdiff_t>(part)}).c_str() ==
            doctest::Contains("must be a whole WebP image"));
  }
}

TEST_SUITE_END();
