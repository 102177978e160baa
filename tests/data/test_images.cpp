// Photographs: decoding of every kind, files that are not photographs, and parts at another size.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <zlib.h>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/images/image_file.h"
#include "data/images/resample.h"
#include "tests/data/photo_fixture.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace rw::test;

namespace {

using Pixel = std::vector<int>;

Pixel at(const Image& image, int y, int x) {
  const size_t i = 3 * static_cast<size_t>(y * image.width + x);
  return {image.pixels[i], image.pixels[i + 1], image.pixels[i + 2]};
}

bool near(const Pixel& a, const Pixel& b, int most = 3) {
  for (size_t c = 0; c < 3; ++c)
    if (std::abs(a[c] - b[c]) > most) return false;
  return true;
}

std::string image_fault(const PhotoBytes& bytes) {
  try {
    decode_image(bytes, "photo.jpg");
  } catch (const FileError& error) {
    return error.what();
  }
  return "no FileError";
}

// Four blocks of 8 x 8: red, green / blue, grey. JPEG keeps their colours.
Image blocks() {
  const Pixel colours[] = {{250, 10, 20}, {10, 240, 30}, {20, 30, 230}, {120, 120, 120}};
  Image image{16, 16, {}};
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 16; ++x)
      for (const int v : colours[y / 8 * 2 + x / 8])
        image.pixels.push_back(static_cast<uint8_t>(v));
  return image;
}

void put_u32(PhotoBytes& bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

// Returns a PNG that claims this size, with right checksums and next to no pixels.
PhotoBytes png_bomb(uint32_t height, uint32_t width) {
  PhotoBytes bytes = png_bytes(gradient(4, 4));
  put_u32(bytes, 16, width);
  put_u32(bytes, 20, height);
  put_u32(bytes, 29, static_cast<uint32_t>(crc32(0, &bytes[12], 17)));
  return bytes;
}

PhotoBytes jpeg_bomb(int height, int width) {
  PhotoBytes bytes = jpeg_bytes(gradient(8, 8));
  const uint8_t frame[] = {0xFF, 0xC0};
  const auto start = std::search(bytes.begin(), bytes.end(), frame, frame + 2) + 5;
  start[0] = static_cast<uint8_t>(height >> 8), start[1] = static_cast<uint8_t>(height);
  start[2] = static_cast<uint8_t>(width >> 8), start[3] = static_cast<uint8_t>(width);
  return bytes;
}

// Computes a value by the definition: every pixel of the image, weighted by a triangle around the
// output's middle.
double slow_value(const Image& image, const CropBox& box, int size, int i, int j, size_t channel) {
  const auto weight = [&](double begin, double length, int k, int output) {
    const double scale = length / size, reach = std::max(1.0, scale);
    return std::max(0.0, 1 - std::abs(k + 0.5 - begin - (output + 0.5) * scale) / reach);
  };
  double sum = 0, total = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const double w = weight(box.y, box.height, y, i) * weight(box.x, box.width, x, j);
      total += w;
      sum += w * image.pixels[3 * static_cast<size_t>(y * image.width + x) + channel];
    }
  }
  return sum / total;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("photos: PNG of every kind becomes RGB of 8 bits") {
  const Image image = gradient(9, 13);
  CHECK(decode_image(png_bytes(image), "x").pixels == image.pixels);
  CHECK(decode_image(png_bytes(9, 13, image.pixels, {.interlaced = true}), "x").pixels ==
        image.pixels);

  const auto decoded = [](PhotoBytes values, const PngKind& kind) {
    const Image out = decode_image(png_bytes(1, 2, std::move(values), kind), "x");
    CHECK(out.height == 1);
    REQUIRE(out.width == 2);
    return std::vector<Pixel>{at(out, 0, 0), at(out, 0, 1)};
  };
  using Two = std::vector<Pixel>;
  CHECK(decoded({7, 200}, {.colours = PNG_COLOR_TYPE_GRAY}) == Two{{7, 7, 7}, {200, 200, 200}});
  CHECK(decoded({0x40}, {.bits = 1, .colours = PNG_COLOR_TYPE_GRAY}) ==
        Two{{0, 0, 0}, {255, 255, 255}});
  // The high byte is what counts.
  CHECK(decoded({10, 10, 20, 20, 30, 30, 255, 255, 128, 128, 0, 0}, {.bits = 16}) ==
        Two{{10, 20, 30}, {255, 128, 0}});
  CHECK(decoded({1, 0}, {.colours = PNG_COLOR_TYPE_PALETTE, .palette = {{9, 8, 7}, {6, 5, 4}}}) ==
        Two{{6, 5, 4}, {9, 8, 7}});
  // White shines through.
  CHECK(decoded({1, 2, 3, 255, 4, 5, 6, 0}, {.colours = PNG_COLOR_TYPE_RGBA}) ==
        Two{{1, 2, 3}, {255, 255, 255}});
  CHECK(decoded({90, 255, 90, 0}, {.colours = PNG_COLOR_TYPE_GRAY_ALPHA}) ==
        Two{{90, 90, 90}, {255, 255, 255}});
  CHECK(decoded({0, 1}, {.colours = PNG_COLOR_TYPE_PALETTE,
                         .palette = {{9, 8, 7}, {6, 5, 4}},
                         .transparency = {255, 0}}) == Two{{9, 8, 7}, {255, 255, 255}});
}

TEST_CASE("photos: a PNG in passes has the pixels of one without") {
  for (const int colours :
       {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA})
    for (const int bits : {8, 16})
      for (const auto& [height, width] : {std::pair{9, 10}, {1, 1}, {3, 17}}) {
        const int channels =
            (colours & PNG_COLOR_MASK_COLOR ? 3 : 1) + (colours & PNG_COLOR_MASK_ALPHA ? 1 : 0);
        PhotoBytes values;
        for (int i = 0; i < height * width * channels * bits / 8; ++i)
          values.push_back(static_cast<uint8_t>(i * 37 + i / 7));
        const auto decoded = [&](bool interlaced) {
          return decode_image(
                     png_bytes(height, width, values,
                               {.bits = bits, .colours = colours, .interlaced = interlaced}),
                     "x")
              .pixels;
        };
        const PhotoBytes passes = decoded(true);
        CHECK(passes == decoded(false));
        if (bits == 16 && colours == PNG_COLOR_TYPE_RGB)
          for (size_t i = 0; i < passes.size(); ++i)  // of 65535 levels to 255, rounded
            CHECK(passes[i] == (values[2 * i] * 256 + values[2 * i + 1] + 128) / 257);
      }
  // A file that ends in a pass, and one whose data are damaged.
  const PhotoBytes whole =
      png_bytes(40, 50, PhotoBytes(40 * 50 * 6, 77), {.bits = 16, .interlaced = true});
  CHECK(image_fault({whole.begin(), whole.begin() + long(whole.size()) - 30}).c_str() ==
        doctest::Contains("must be a whole PNG image"));
  PhotoBytes damaged = whole;
  damaged[60] ^= 0x55;
  CHECK(image_fault(damaged).c_str() == doctest::Contains("must be a whole PNG image"));
}

TEST_CASE("photos: JPEG of every kind becomes RGB") {
  for (const bool progressive : {false, true}) {
    const Image out = decode_image(jpeg_bytes(blocks(), {.progressive = progressive}), "x");
    REQUIRE(out.height == 16);
    REQUIRE(out.width == 16);
    CHECK(near(at(out, 3, 3), {250, 10, 20}));
    CHECK(near(at(out, 3, 12), {10, 240, 30}));
    CHECK(near(at(out, 12, 3), {20, 30, 230}));
    CHECK(near(at(out, 12, 12), {120, 120, 120}));
  }
  const Image grey = decode_image(jpeg_bytes(8, 8, PhotoBytes(64, 77), {JCS_GRAYSCALE}), "x");
  CHECK(near(at(grey, 4, 4), {77, 77, 77}));
  // Adobe's inks are inverted: 255 is none.
  PhotoBytes inks;
  for (int i = 0; i < 64; ++i) inks.insert(inks.end(), {200, 100, 255, 128});
  const Image printed = decode_image(jpeg_bytes(8, 8, inks, {JCS_CMYK}), "x");
  CHECK(near(at(printed, 4, 4), {200 * 128 / 255, 100 * 128 / 255, 128}));
}

TEST_CASE("photos: a JPEG is decoded at a part of its size where that is enough") {
  const PhotoBytes bytes = jpeg_bytes(gradient(256, 512));
  const auto height = [&](int least) { return decode_image(bytes, "x", least).height; };
  CHECK(height(0) == 256);
  CHECK(height(129) == 256);
  CHECK(height(128) == 128);
  CHECK(height(40) == 64);
  CHECK(height(1) == 32);
  const Image small = decode_image(bytes, "x", 64);
  CHECK(near(at(small, 32, 64), at(gradient(256, 512), 130, 258), 4));
}

TEST_CASE("photos: EXIF says how a photograph is held") {
  // The place of the corner that is stored first: rows and columns from the start or the end.
  struct Turn {
    int orientation;
    bool swapped, at_bottom, at_right;
  };
  const Image stored = gradient(16, 32);
  for (const auto& [orientation, swapped, at_bottom, at_right] :
       {Turn{1, false, false, false}, Turn{2, false, false, true}, Turn{3, false, true, true},
        Turn{4, false, true, false}, Turn{5, true, false, false}, Turn{6, true, false, true},
        Turn{7, true, true, true}, Turn{8, true, true, false}}) {
    CAPTURE(orientation);
    for (const bool big_endian : {false, true}) {
      const Image out = decode_image(
          jpeg_bytes(stored, {.orientation = orientation, .big_endian = big_endian}), "x");
      const PngKind kind = {.orientation = orientation, .big_endian = big_endian};
      const Image png = decode_image(png_bytes(16, 32, stored.pixels, kind), "x");
      CHECK(png.pixels == oriented(stored, orientation).pixels);
      CHECK(png.height == out.height);
      REQUIRE(out.height == (swapped ? 32 : 16));
      REQUIRE(out.width == (swapped ? 16 : 32));
      const int y = at_bottom ? out.height - 1 : 0, x = at_right ? out.width - 1 : 0;
      CHECK(near(at(out, y, x), at(stored, 0, 0), 6));
      // The second channel grows along the stored row.
      const int far_y = swapped ? out.height - 1 - y : y, far_x = swapped ? x : out.width - 1 - x;
      CHECK(near(at(out, far_y, far_x), at(stored, 0, 31), 6));
    }
  }
  const Image strange = decode_image(jpeg_bytes(stored, {.orientation = 77}), "x");
  CHECK(strange.height == 16);
  // A damaged chunk counts as missing. libpng writes it before the pixels and behind them.
  PhotoBytes file = png_bytes(16, 32, stored.pixels, {.orientation = 6});
  const std::string_view type = "eXIf";
  const auto find = [&](auto from) {
    return std::search(from, file.end(), type.begin(), type.end());
  };
  REQUIRE(find(file.begin()) != file.end());
  for (auto chunk = find(file.begin()); chunk != file.end(); chunk = find(chunk + 4))
    chunk[4 + 18] = 3;
  CHECK(decode_image(file, "x").pixels == stored.pixels);
}

TEST_CASE("photos: the size is read from the first bytes of a file") {
  const TemporaryFolder folder;
  PhotoBytes jpeg = jpeg_bytes(gradient(24, 40));
  for (const auto& [name, bytes] :
       {std::pair{"a.png", png_bytes(gradient(24, 40))}, {"a.jpg", jpeg}}) {
    CAPTURE(name);
    write_file(folder / name,
               std::span(bytes).first(bytes.size() - 40));  // later damage is not seen
    const ImageHeader header = load_image_header(folder / name);
    CHECK(header.size.height == 24);
    CHECK(header.size.width == 40);
    write_file(folder / name, bytes);
    CHECK(load_image_header(folder / name).hash != header.hash);
    write_file(folder / name, std::span(bytes).first(20));
    CHECK_THROWS_WITH_AS(load_image_header(folder / name), doctest::Contains("must be a whole "),
                         FileError);
  }
  // Much lies before the size, as thumbnails and profiles do.
  const std::vector<PhotoBytes> long_blocks(3, PhotoBytes(60'000, 1));
  write_file(folder / "b.jpg", jpeg_bytes(24, 40, gradient(24, 40).pixels, {.exif = long_blocks}));
  CHECK(load_image_header(folder / "b.jpg").size.width == 40);
  write_file(folder / "c.jpg", png_bomb(60000, 60000));
  CHECK_THROWS_WITH_AS(load_image_header(folder / "c.jpg"),
                       doctest::Contains("at most 1 GiB of pixels"), FileError);
}

TEST_CASE("photos: what is no photograph is refused by name") {
  CHECK(image_fault({}).c_str() ==
        doctest::Contains(
            ("'photo.jpg' must be a " + image_format_names() + " image, got 0").c_str()));
  CHECK(image_fault(PhotoBytes{'G', 'I', 'F', '8', '9', 'a'}).c_str() ==
        doctest::Contains("image, got 6 bytes that begin otherwise"));
  for (const PhotoBytes& whole : {png_bytes(gradient(40, 50)), jpeg_bytes(gradient(40, 50)),
                                  jpeg_bytes(gradient(40, 50), {.progressive = true})}) {
    CHECK(image_fault(whole) == "no FileError");
    for (const size_t part : {size_t{8}, size_t{30}, whole.size() / 2, whole.size() - 40}) {
      CAPTURE(part);
      const PhotoBytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(part));
      CHECK(image_fault(cut).c_str() == doctest::Contains("'photo.jpg' must be a whole "));
    }
  }
  PhotoBytes damaged = png_bytes(gradient(40, 50));
  damaged[damaged.size() / 2] ^= 1;
  CHECK(image_fault(damaged).c_str() == doctest::Contains("must be a whole PNG image"));
}

TEST_CASE("photos: sizes that no photograph has take no memory") {
  CHECK(image_fault(png_bomb(60000, 60000)).c_str() ==
        doctest::Contains("at most 1 GiB of pixels"));
  CHECK(image_fault(png_bomb(10000, 10000)).c_str() ==
        doctest::Contains("10000 x 10000 pixels, which no photograph is"));
  CHECK(image_fault(png_bomb(70000, 1)).c_str() == doctest::Contains("1 to 65535 pixels"));
  CHECK(image_fault(png_bomb(0, 4)).c_str() == doctest::Contains("must be a whole PNG"));
  CHECK(image_fault(jpeg_bomb(60000, 60000)).c_str() ==
        doctest::Contains("at most 1 GiB of pixels"));
  CHECK(image_fault(jpeg_bomb(9000, 9000)).c_str() == doctest::Contains("which no photograph is"));
  CHECK(image_fault(jpeg_bomb(8, 0)).c_str() == doctest::Contains("must be a whole JPEG"));
}

TEST_CASE("photos: files are read by what they hold, and named") {
  const TemporaryFolder folder;
  write_file(folder / "photo.jpg", png_bytes(gradient(3, 5)));
  CHECK(load_image(folder / "photo.jpg").pixels == gradient(3, 5).pixels);
  CHECK_THROWS_WITH_AS(load_image(folder / "none.png"), doctest::Contains("none.png is not there"),
                       FileError);
}

TEST_CASE("photos: resampling is what its definition says") {
  const Image image = gradient(37, 53);
  for (const CropBox& box :
       {CropBox{0, 0, 37, 53}, CropBox{3.3, 7.9, 20.2, 30.7}, CropBox{30, 50, 7, 3},
        CropBox{12.5, 12.5, 1, 1}, centre_crop(37, 53, 0.875)}) {
    for (const int size : {1, 6, 64}) {
      std::vector<float> out(static_cast<size_t>(3 * size * size), -1), mirrored = out;
      resample(image, box, size, false, out.data());
      resample(image, box, size, true, mirrored.data());
      double worst = 0;
      for (int i = 0; i < size; ++i) {
        for (int j = 0; j < size; ++j) {
          for (size_t c = 0; c < 3; ++c) {
            const auto place = [&](int column) {
              return 3 * static_cast<size_t>(i * size + column) + c;
            };
            const double wanted = slow_value(image, box, size, i, j, c);
            worst = std::max(worst, std::abs(wanted - out[place(j)]));
            worst = std::max(worst, std::abs(wanted - mirrored[place(size - 1 - j)]));
          }
        }
      }
      CHECK(worst < 1e-3);
    }
  }
  // A pattern of single pixels becomes grey, and no single pixel stands for all.
  Image stripes{64, 64, {}};
  for (int i = 0; i < 64 * 64; ++i) stripes.pixels.insert(stripes.pixels.end(), 3, i % 2 ? 255 : 0);
  std::vector<float> grey(3 * 8 * 8);
  resample(stripes, {0, 0, 64, 64}, 8, false, grey.data());
  for (const float v : grey) CHECK(v == doctest::Approx(127.5).epsilon(0.05));
  CHECK_THROWS_AS(resample(stripes, {0, 0, 65, 64}, 8, false, grey.data()), ValueError);
  CHECK_THROWS_AS(resample(stripes, {-1, 0, 4, 4}, 8, false, grey.data()), ValueError);
}

TEST_CASE("photos: random crops lie inside and cover what they should") {
  DataRandom random(3);
  double least = 1, most = 0;
  for (int i = 0; i < 2000; ++i) {
    const CropBox box = random_crop(300, 400, random);
    REQUIRE(box.y >= 0);
    REQUIRE(box.x >= 0);
    REQUIRE(box.y + box.height <= 300.001);
    REQUIRE(box.x + box.width <= 400.001);
    const double share = box.height * box.width / (300.0 * 400), ratio = box.width / box.height;
    REQUIRE(ratio > 0.749);
    REQUIRE(ratio < 1.334);
    least = std::min(least, share), most = std::max(most, share);
  }
  CHECK(least == doctest::Approx(0.08).epsilon(0.1));
  CHECK(most > 0.9);
  const CropBox strip = random_crop(10, 1000, random);  // no such shape has 8 % of it
  CHECK(strip.height == 10);
  CHECK(strip.width == doctest::Approx(40 / 3.0));
  const CropBox middle = centre_crop(100, 200, 0.5);
  CHECK(middle.y == 25);
  CHECK(middle.x == 75);
  CHECK(middle.width == 50);
}

TEST_SUITE_END();
