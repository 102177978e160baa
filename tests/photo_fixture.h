// PNG and JPEG files, written by the libraries that read them.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <jpeglib.h>
#include <png.h>
#include <vector>

#include "../data/image.h"

namespace rw::test {

using PhotoBytes = std::vector<uint8_t>;

// How a PNG is stored; `values`: bytes of its rows.
struct PngKind {
  int bits = 8, colours = PNG_COLOR_TYPE_RGB;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::vector<uint8_t> transparency = {};  // of the palette's entries
};

inline PhotoBytes png_bytes(int height, int width, PhotoBytes values, const PngKind& kind = {}) {
  PhotoBytes file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp to, png_bytep data, size_t size) {
        auto& bytes = *static_cast<PhotoBytes*>(png_get_io_ptr(to));
        bytes.insert(bytes.end(), data, data + size);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               kind.bits, kind.colours, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty())
    png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  if (!kind.transparency.empty())
    png_set_tRNS(png, info, kind.transparency.data(), static_cast<int>(kind.transparency.size()),
                 nullptr);
  const size_t row_bytes = values.size() / static_cast<size_t>(height);
  std::vector<png_bytep> rows;
  for (int y = 0; y < height; ++y) rows.push_back(&values[static_cast<size_t>(y) * row_bytes]);
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}
inline PhotoBytes png_bytes(const Image& image) {
  return png_bytes(image.height, image.width, image.pixels);
}

struct JpegKind {
  J_COLOR_SPACE colours = JCS_RGB;
  bool progressive = false;
  int orientation = 0;  // in EXIF, where it is not 0
  bool big_endian = false;
};

// The APP1 marker of a camera that says no more than the orientation.
inline PhotoBytes exif_bytes(int orientation, bool big_endian) {
  const auto number = [&](int bytes, int value) {
    PhotoBytes out(static_cast<size_t>(bytes));
    out[big_endian ? out.size() - 1 : 0] = static_cast<uint8_t>(value & 255);
    out[big_endian ? out.size() - 2 : 1] = static_cast<uint8_t>(value >> 8);
    return out;
  };
  PhotoBytes exif = {'E', 'x', 'i', 'f', 0, 0};
  const uint8_t order = big_endian ? 'M' : 'I';
  exif.insert(exif.end(), {order, order});
  // 42; where the directory is; one entry: tag, type u16, one of them, value; no further directory.
  for (const auto& [bytes, value] : {std::pair{2, 42},
                                     {4, 8},
                                     {2, 1},
                                     {2, 0x112},
                                     {2, 3},
                                     {4, 1},
                                     {2, orientation},
                                     {2, 0},
                                     {4, 0}}) {
    const PhotoBytes part = number(bytes, value);
    exif.insert(exif.end(), part.begin(), part.end());
  }
  return exif;
}

// Of the best quality, without smaller colour planes.
inline PhotoBytes jpeg_bytes(int height, int width, PhotoBytes values, const JpegKind& kind = {}) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &data, &size);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  const size_t channels = values.size() / static_cast<size_t>(height * width);
  jpeg.input_components = static_cast<int>(channels);
  jpeg.in_color_space = kind.colours;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  for (int c = 0; c < jpeg.num_components; ++c)
    jpeg.comp_info[c].h_samp_factor = jpeg.comp_info[c].v_samp_factor = 1;
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  if (kind.orientation) {
    const PhotoBytes exif = exif_bytes(kind.orientation, kind.big_endian);
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, exif.data(), static_cast<unsigned>(exif.size()));
  }
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = &values[jpeg.next_scanline * static_cast<size_t>(width) * channels];
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  PhotoBytes file(data, data + size);
  jpeg_destroy_compress(&jpeg);
  std::free(data);
  return file;
}
inline PhotoBytes jpeg_bytes(const Image& image, const JpegKind& kind = {}) {
  return jpeg_bytes(image.height, image.width, image.pixels, kind);
}

// A smooth picture whose corners differ.
inline Image gradient(int height, int width) {
  Image image{height, width, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int value : {255 * y / height, 255 * x / width, 255 * (x + y) / (height + width)})
        image.pixels.push_back(static_cast<uint8_t>(value));
  return image;
}

}  // namespace rw::test
