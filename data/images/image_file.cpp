#include "data/images/image_file.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <new>
#include <string_view>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/files/file.h"
#include "data/base/files.h"
#include "data/images/formats/jpeg_file.h"
#include "data/images/formats/png_file.h"
#ifdef REWIND_WEBP
#include "data/images/formats/webp_file.h"
#endif

namespace rw {

namespace {

constexpr uint64_t most_bytes = uint64_t{1} << 30;

// How files of a format begin (at a byte), how their names end, and what reads them.
struct ImageFormat {
  std::string_view name, start;
  size_t place;
  std::string_view endings;  // with a blank before and behind each
  Image (*decode)(std::span<const uint8_t> bytes, const std::string& name, int least_side);
  ImageSize (*size)(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name);
};

constexpr ImageFormat image_formats[] = {
    {"PNG", "\x89PNG", 0, " .png .apng ",
     [](auto bytes, const auto& name, int) { return decode_png(bytes, name); }, png_size},
    {"JPEG", "\xff\xd8", 0, " .jpg .jpeg .jpe .jfif ", decode_jpeg, jpeg_size},
#ifdef REWIND_WEBP
    {"WebP", "WEBP", 8, " .webp ",
     [](auto bytes, const auto& name, int) { return decode_webp(bytes, name); }, webp_size},
#endif
};

const ImageFormat& format_of(std::span<const uint8_t> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const ImageFormat& format : image_formats)
    if (text.size() > format.place && text.substr(format.place).starts_with(format.start))
      return format;
  fail<FileError>(
      "decode_image",
      "'{}' must be a {} image, got {} bytes that begin otherwise; convert or remove it", name,
      image_format_names(), bytes.size());
}

ImageSize size_of_image(std::span<const uint8_t> bytes, uint64_t stored, const std::string& name) {
  return format_of(bytes, name).size(bytes, stored, name);
}

// The first bytes of a file; none of one that cannot be opened.
std::vector<uint8_t> first_bytes(const std::filesystem::path& path, uint64_t& stored) {
  constexpr uint64_t most = uint64_t{64} << 10;
  try {
    const InputFile file(path);
    stored = file.size();
    std::vector<uint8_t> bytes(std::min(stored, most));
    file.read(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  } catch (const FileError&) {
    return {};
  }
}

}  // namespace

std::string image_format_names() {
  std::string names;
  for (const ImageFormat& format : image_formats) {
    const bool is_last = &format == std::end(image_formats) - 1;
    names += names.empty() ? "" : is_last ? " or " : ", ";
    names += format.name;
  }
  return names;
}

bool is_image_name(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return !ending.empty() && std::ranges::any_of(image_formats, [&](const ImageFormat& format) {
    return format.endings.find(" " + ending + " ") != std::string_view::npos;
  });
}

Image decode_image(std::span<const uint8_t> bytes, const std::string& name, int least_side) {
  try {
    return format_of(bytes, name).decode(bytes, name, least_side);
  } catch (const std::bad_alloc&) {
    fail<OutOfMemory>("decode_image", "the host must have memory for the pixels of '{}'", name);
  }
}

Image load_image(const std::filesystem::path& file, int least_side) {
  return decode_image(read_file(file, most_bytes), file.string(), least_side);
}

// Thumbnails and colour profiles may lie before the size, further than the first bytes. Such files
// are read whole, as are those in which something is wrong, which is then the error.
ImageHeader load_image_header(const std::filesystem::path& file) {
  uint64_t stored = 0;
  const std::vector<uint8_t> bytes = first_bytes(file, stored);
  const uint64_t hash = fnv1a(fnv1a(std::as_bytes(std::span(bytes))), stored);
  try {
    return {size_of_image(bytes, stored, file.string()), hash};
  } catch (const FileError&) {
    const std::vector<uint8_t> all = read_file(file, most_bytes);
    return {size_of_image(all, all.size(), file.string()), hash};
  }
}

}  // namespace rw
