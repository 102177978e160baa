#include "data/images/idx.h"

#include <fmt/format.h>

#include <limits>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "data/base/files.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr uint8_t unsigned_byte = 0x08;

int64_t big_endian32(const uint8_t* bytes) {
  return int64_t{bytes[0]} << 24 | int64_t{bytes[1]} << 16 | int64_t{bytes[2]} << 8 | bytes[3];
}

fs::path mnist_file(const fs::path& directory, Split split, const char* what) {
  return directory / fmt::format("{}-{}-ubyte", split == Split::train ? "train" : "t10k", what);
}

IdxArray load_plain_or_gzip(fs::path file) {
  std::error_code unknown;
  if (!fs::exists(file, unknown)) file += ".gz";
  return load_idx(file);
}

}  // namespace

IdxArray load_idx(const fs::path& file) {
  const std::vector<uint8_t> bytes = read_file(file);
  check<FileError>(bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0 &&
                       bytes[2] == unsigned_byte && bytes[3] >= 1 && bytes[3] <= 4,
                   "load_idx", "{} is not an IDX file of unsigned bytes", file.string());
  const size_t rank = bytes[3], header = 4 + 4 * rank;
  check<FileError>(bytes.size() >= header, "load_idx", "{} ends within its header of {} bytes",
                   file.string(), header);
  IdxArray array;
  std::optional<int64_t> count = 1;
  for (size_t i = 0; i < rank; ++i) {
    array.shape.push_back(big_endian32(bytes.data() + 4 + 4 * i));
    count = checked_mul(count, array.shape.back());
  }
  check<FileError>(count == static_cast<int64_t>(bytes.size() - header), "load_idx",
                   "{} must have {} bytes after its header, it has {}", file.string(),
                   count ? std::to_string(*count) : "more than 2^63", bytes.size() - header);
  array.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return array;
}

void save_idx(const fs::path& file, const IdxArray& array) {
  std::vector<uint8_t> bytes = {0, 0, unsigned_byte, static_cast<uint8_t>(array.shape.size())};
  for (int64_t size : array.shape)
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<uint8_t>(size >> shift));
  bytes.insert(bytes.end(), array.values.begin(), array.values.end());
  write_file(file, bytes);
}

ImageDataset load_mnist(const fs::path& directory, Split split) {
  std::error_code unknown;
  check<FileError>(fs::is_directory(directory, unknown), "load_mnist", "{} is not a folder",
                   directory.string());
  IdxArray images = load_plain_or_gzip(mnist_file(directory, split, "images-idx3"));
  const IdxArray labels = load_plain_or_gzip(mnist_file(directory, split, "labels-idx1"));
  check<FileError>(
      images.shape.size() == 3 && labels.shape.size() == 1 && images.shape[0] == labels.shape[0] &&
          images.shape[0] > 0,
      "load_mnist", "{} must hold images [n, h, w] and as many labels, got [{}] and [{}]",
      directory.string(), fmt::join(images.shape, ", "), fmt::join(labels.shape, ", "));
  constexpr int64_t widest = std::numeric_limits<int>::max();
  const int64_t height = images.shape[1], width = images.shape[2];
  check<FileError>(height > 0 && width > 0 && height <= widest && width <= widest, "load_mnist",
                   "{} must hold images of 1 to {} rows and columns, got {} x {}",
                   directory.string(), widest, height, width);
  ImageDataset data{static_cast<int>(height), static_cast<int>(width), 1, 10, {}, {}, {}};
  data.pixels = std::move(images.values);
  for (size_t i = 0; i < labels.values.size(); ++i) {
    check<FileError>(labels.values[i] < 10, "load_mnist",
                     "{} has label {} at {}, 0 to 9 is allowed", directory.string(),
                     labels.values[i], i);
    data.labels.push_back(labels.values[i]);
  }
  return data;
}

void save_mnist(const fs::path& directory, Split split, const ImageDataset& data) {
  check(data.channels == 1, "save_mnist", "images must have one channel, got {}", data.channels);
  const auto n = static_cast<int64_t>(data.size());
  save_idx(mnist_file(directory, split, "labels-idx1"),
           {{n}, {data.labels.begin(), data.labels.end()}});
  save_idx(mnist_file(directory, split, "images-idx3"),
           {{n, data.height, data.width}, data.pixels});
}

}  // namespace rw
