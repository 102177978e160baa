// Readers of photographs.
#include <zlib.h>

#include "data/images/image_file.h"
#include "data/images/resample.h"
#include "tests/data/photo_fixture.h"
#include "tests/fuzz/target.h"

namespace rw::fuzz {

namespace {

// An accepted image is whole, and can be made smaller.
void use_image(const Image& image) {
  expect(image.height > 0 && image.width > 0 &&
             image.pixels.size() ==
                 3 * static_cast<size_t>(image.height) * static_cast<size_t>(image.width),
         "an image has its pixels");
  std::vector<float> out(3 * 4 * 4);
  DataRandom random(1);
  for (const CropBox& box : {centre_crop(image.height, image.width, 0.875),
                             random_crop(image.height, image.width, random)})
    resample(image, box, 4, true, out.data());
  for (const float v : out) expect(v >= 0 && v <= 255.1f, "means lie between pixels");
}

// The checksums are made right, so that mutations get further.
void read_png(Input input) {
  Bytes file(input.begin(), input.end());
  const auto number = [&](size_t at) {
    return uint32_t{file[at]} << 24 | uint32_t{file[at + 1]} << 16 | uint32_t{file[at + 2]} << 8 |
           file[at + 3];
  };
  for (size_t at = 8; at + 12 <= file.size() && number(at) <= file.size() - at - 12;) {
    const size_t length = number(at);
    const auto sum = static_cast<uint32_t>(crc32(0, &file[at + 4], static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i)
      file[at + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += length + 12;
  }
  load_image_header(write_scratch("photo", file));
  use_image(decode_image(file, "photo"));
}

// JPEG and WebP.
void read_photo(Input input) {
  load_image_header(write_scratch("photo", input));
  use_image(decode_image(input, "photo", input.size() % 2 ? 3 : 0));
}

std::vector<Bytes> png_seeds() {
  using namespace rw::test;
  return {png_bytes(gradient(9, 13)),
          png_bytes(4, 4, Bytes(32, 9), {.bits = 16, .colours = PNG_COLOR_TYPE_GRAY}),
          png_bytes(3, 2, Bytes(24, 7), {.colours = PNG_COLOR_TYPE_RGBA, .interlaced = true}),
          png_bytes(3, 5, Bytes(90, 7), {.bits = 16, .interlaced = true, .orientation = 6}),
          png_bytes(1, 2, {0, 1},
                    {.colours = PNG_COLOR_TYPE_PALETTE,
                     .palette = {{1, 2, 3}, {4, 5, 6}},
                     .transparency = {9}})};
}

std::vector<Bytes> jpeg_seeds() {
  using namespace rw::test;
  return {jpeg_bytes(gradient(9, 13), {.orientation = 6}),
          jpeg_bytes(gradient(20, 17), {.progressive = true}),
          jpeg_bytes(8, 8, Bytes(64, 9), {JCS_GRAYSCALE}),
          jpeg_bytes(8, 9, Bytes(8 * 9 * 4, 99), {JCS_CMYK})};
}

std::vector<Bytes> webp_seeds() {
  struct Golden {
    const char* name;
    int height, width;
    std::string_view file, pixels;
  };
  std::vector<Bytes> seeds;
  for (const Golden& golden : std::initializer_list<Golden>{
#include "tests/goldens/photos.inc"
       }) {
    Bytes& seed = seeds.emplace_back();
    for (size_t i = 0; i < golden.file.size(); i += 2)
      seed.push_back(
          static_cast<uint8_t>(std::stoi(std::string(golden.file.substr(i, 2)), nullptr, 16)));
  }
  return seeds;
}

}  // namespace

std::vector<Target> photo_targets() {
  std::vector<Target> targets = {
      {"png", read_png, png_seeds, {"IDAT", "IHDR", "PLTE", "tRNS", "gAMA", "iCCP", "IEND"}},
      {"jpeg",
       read_photo,
       jpeg_seeds,
       {"Exif", "\xff\xda", "\xff\xc2", "\xff\xd9", "\xff\xdd", "Adobe"}}};
  if (is_image_name("a.webp"))
    targets.push_back({"webp",
                       read_photo,
                       webp_seeds,
                       {"VP8 ", "VP8L", "VP8X", "ALPH", "ANIM", "ANMF", "EXIF", "RIFF"}});
  return targets;
}

}  // namespace rw::fuzz
