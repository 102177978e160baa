#include "data/images/formats/png_file.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <png.h>
#include <utility>
#include <zlib.h>

#include "core/base/error.h"

namespace rw {

namespace {

// Writes a file anew without passes. libpng reports errors by longjmp(), so functions that call it
// have nothing to destroy, as in jpeg_file.cpp.
struct PngRewriter {
  png_structp reader = nullptr, writer = nullptr;
  png_infop info = nullptr;
  std::span<const uint8_t> rest;  // of the file that is read
  std::vector<uint8_t> written;
  std::jmp_buf failed{};
  char why[128] = "";

  explicit PngRewriter(std::span<const uint8_t> file) : rest(file) {}
  ~PngRewriter() {
    png_destroy_write_struct(&writer, nullptr);
    png_destroy_read_struct(&reader, &info, nullptr);
  }
  PngRewriter(const PngRewriter&) = delete;
  PngRewriter& operator=(const PngRewriter&) = delete;

  bool read();
  bool write();
};

[[noreturn]] void end_png(png_structp png, png_const_charp why) {
  auto& rewriter = *static_cast<PngRewriter*>(png_get_error_ptr(png));
  std::snprintf(rewriter.why, sizeof rewriter.why, "%s", why);
  std::longjmp(rewriter.failed, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void take_png_bytes(png_structp png, png_bytep to, size_t count) {
  auto& rewriter = *static_cast<PngRewriter*>(png_get_io_ptr(png));
  if (count > rewriter.rest.size()) png_error(png, "its data end too early");
  std::memcpy(to, rewriter.rest.data(), count);
  rewriter.rest = rewriter.rest.subspan(count);
}

void give_png_bytes(png_structp png, png_bytep from, size_t count) {
  auto& rewriter = *static_cast<PngRewriter*>(png_get_io_ptr(png));
  bool has_memory = true;
  try {
    rewriter.written.insert(rewriter.written.end(), from, from + count);
  } catch (const std::bad_alloc&) {
    has_memory = false;
  }
  if (!has_memory) png_error(png, "more bytes than the host has memory for");
}

bool PngRewriter::read() {
  if (setjmp(failed)) return false;
  reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, end_png, ignore_warning);
  if (reader) info = png_create_info_struct(reader);
  if (!info) return false;
  png_set_read_fn(reader, this, take_png_bytes);
  png_read_png(reader, info, PNG_TRANSFORM_IDENTITY, nullptr);
  return true;
}

bool PngRewriter::write() {
  if (setjmp(failed)) return false;
  writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, this, end_png, ignore_warning);
  if (!writer) return false;
  png_set_write_fn(writer, this, give_png_bytes, nullptr);
  png_set_IHDR(reader, info, png_get_image_width(reader, info), png_get_image_height(reader, info),
               png_get_bit_depth(reader, info), png_get_color_type(reader, info),
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_compression_level(writer, 1);
  png_write_png(writer, info, PNG_TRANSFORM_IDENTITY, nullptr);
  return true;
}

uint32_t big_endian(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// The orientation in the chunk eXIf, which lies anywhere in the file. libpng's simplified interface
// does not tell. A chunk that is damaged counts as missing.
int png_orientation(std::span<const uint8_t> file) {
  constexpr size_t signature = 8, head = 8, tail = 4;
  for (auto rest = file.subspan(signature); rest.size() >= head + tail;) {
    const size_t size = big_endian(rest);
    if (size > rest.size() - head - tail) return 1;
    const auto chunk = rest.subspan(4, 4 + size);  // with its type
    const auto sum = crc32(0, chunk.data(), static_cast<uInt>(chunk.size()));
    if (std::memcmp(chunk.data(), "eXIf", 4) == 0 && sum == big_endian(rest.subspan(head + size)))
      return exif_orientation(chunk.subspan(4));
    rest = rest.subspan(head + size + tail);
  }
  return 1;
}

// Whether the file has 16 bits and passes (Adam7), by its first chunk.
bool has_16_bits_in_passes(std::span<const uint8_t> file) {
  return file.size() > 28 && file[24] == 16 && file[28] == 1;
}

// libpng's "simplified" interface: it has its longjmp() inside, and converts everything.
struct SimplePng {
  png_image png{};

  // Reads the header of a file of `stored` bytes.
  SimplePng(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name) {
    png.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0)
      fail_with_message(name);
    check_image_size(png.height, png.width, stored, name);
  }
  ~SimplePng() { png_image_free(&png); }
  SimplePng(const SimplePng&) = delete;
  SimplePng& operator=(const SimplePng&) = delete;

  [[noreturn]] void fail_with_message(const std::string& name) const {
    fail<FileError>("decode_image", "'{}' must be a whole PNG image, got one with: {}", name,
                    std::string(png.message));
  }
};

Image decode_simply(std::span<const uint8_t> bytes, const std::string& name) {
  SimplePng reader(bytes, bytes.size(), name);
  png_image& png = reader.png;
  // Debian's libpng 1.6.39 gives wrong pixels for these, so they are written anew without passes.
  if (has_16_bits_in_passes(bytes)) {
    PngRewriter rewriter(bytes);
    check<FileError>(rewriter.read() && rewriter.write(), "decode_image",
                     "'{}' must be a whole PNG image, got one with: {}", name,
                     std::string(rewriter.why));
    return decode_simply(rewriter.written, name);
  }
  png.format = PNG_FORMAT_RGB;
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // unless it says otherwise
  Image image{static_cast<int>(png.height), static_cast<int>(png.width), {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&png, &white, image.pixels.data(), 0, nullptr) == 0)
    reader.fail_with_message(name);
  return image;
}

}  // namespace

Image decode_png(std::span<const uint8_t> bytes, const std::string& name) {
  Image image = decode_simply(bytes, name);  // first, since only a whole file has chunks
  return oriented(std::move(image), png_orientation(bytes));
}

ImageSize png_size(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name) {
  const SimplePng reader(bytes, stored, name);
  return {static_cast<int>(reader.png.height), static_cast<int>(reader.png.width)};
}

}  // namespace rw
