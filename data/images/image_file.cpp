#include "data/images/image_file.h"

#include <algorithm>
#include <new>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/images/jpeg_file.h"
#include "data/images/png_file.h"

namespace rw {

namespace {

bool begins_with(std::span<const uint8_t> bytes, std::initializer_list<uint8_t> start) {
  return bytes.size() >= start.size() && std::equal(start.begin(), start.end(), bytes.begin());
}

}  // namespace

Image decode_image(std::span<const uint8_t> bytes, const std::string& name, int least_side) {
  try {
    if (begins_with(bytes, {0x89, 'P', 'N', 'G'})) return decode_png(bytes, name);
    if (begins_with(bytes, {0xFF, 0xD8})) return decode_jpeg(bytes, name, least_side);
  } catch (const std::bad_alloc&) {
    fail<OutOfMemory>("decode_image", "the host must have memory for the pixels of '{}'", name);
  }
  fail<FileError>("decode_image",
                  "'{}' must be a PNG or JPEG image, got {} bytes that begin otherwise; convert or "
                  "remove it",
                  name, bytes.size());
}

Image load_image(const std::filesystem::path& file, int least_side) {
  constexpr uint64_t most = uint64_t{1} << 30;
  return decode_image(read_file(file, most), file.string(), least_side);
}

}  // namespace rw
