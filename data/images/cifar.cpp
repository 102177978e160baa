#include "data/images/cifar.h"

#include <algorithm>
#include <sstream>

#include "core/base/error.h"
#include "data/base/files.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr int cifar_side = 32, plane = cifar_side * cifar_side, image_size = 3 * plane,
              record_size = 1 + image_size;
constexpr int class_count = 10;

fs::path inner_folder(const fs::path& directory) {
  std::error_code unknown;
  const fs::path inner = directory / "cifar-10-batches-bin";
  return fs::is_directory(inner, unknown) ? inner : directory;
}

// The files that exist.
std::vector<fs::path> batch_files(const fs::path& directory, Split split) {
  std::vector<fs::path> files;
  if (split == Split::test) {
    files.push_back(directory / "test_batch.bin");
  } else {
    for (int i = 1; i <= 5; ++i) files.push_back(directory / fmt::format("data_batch_{}.bin", i));
  }
  std::error_code unknown;
  std::erase_if(files, [&](const fs::path& file) { return !fs::exists(file, unknown); });
  return files;
}

void append_batch(const fs::path& file, ImageDataset& data) {
  const std::vector<uint8_t> bytes = read_file(file);
  check<FileError>(!bytes.empty() && bytes.size() % record_size == 0, "load_cifar10",
                   "{} must be a whole number of records of {} bytes, its size is {}",
                   file.string(), record_size, bytes.size());
  for (size_t at = 0; at < bytes.size(); at += record_size) {
    const int label = bytes[at];
    check<FileError>(label < class_count, "load_cifar10",
                     "{} has label {} in record {}, 0 to 9 is allowed", file.string(), label,
                     at / record_size);
    data.labels.push_back(label);
    for (int i = 0; i < plane; ++i)
      for (int channel = 0; channel < 3; ++channel)
        data.pixels.push_back(bytes[at + 1 + static_cast<size_t>(channel * plane + i)]);
  }
}

std::vector<std::string> read_class_names(const fs::path& file) {
  std::error_code unknown;
  if (!fs::exists(file, unknown)) return {};
  const std::vector<uint8_t> bytes = read_file(file, 1 << 20);
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) names.push_back(line);
  return names.size() == class_count ? names : std::vector<std::string>{};
}

}  // namespace

bool is_cifar10(const fs::path& directory) {
  const fs::path root = inner_folder(directory);
  return !batch_files(root, Split::train).empty() || !batch_files(root, Split::test).empty();
}

ImageDataset load_cifar10(const fs::path& directory, Split split) {
  std::error_code unknown;
  check<FileError>(fs::is_directory(directory, unknown), "load_cifar10", "{} is not a folder",
                   directory.string());
  const fs::path root = inner_folder(directory);
  const std::vector<fs::path> files = batch_files(root, split);
  check<FileError>(
      !files.empty(), "load_cifar10",
      "{} must hold {} of the binary version of CIFAR-10, it has none", root.string(),
      split == Split::test ? "test_batch.bin" : "data_batch_1.bin to data_batch_5.bin");
  ImageDataset data{
      cifar_side, cifar_side, 3, class_count, {}, {}, read_class_names(root / "batches.meta.txt")};
  for (const fs::path& file : files) append_batch(file, data);
  return data;
}

void save_cifar10(const fs::path& directory, Split split, const ImageDataset& data) {
  check(data.height == cifar_side && data.width == cifar_side && data.channels == 3, "save_cifar10",
        "images must be 32x32x3, got {}x{}x{}", data.height, data.width, data.channels);
  std::vector<uint8_t> bytes;
  bytes.reserve(data.size() * record_size);
  for (size_t n = 0; n < data.size(); ++n) {
    bytes.push_back(static_cast<uint8_t>(data.labels[n]));
    const auto image = data.image(n);
    for (int channel = 0; channel < 3; ++channel)
      for (int i = 0; i < plane; ++i) bytes.push_back(image[static_cast<size_t>(3 * i + channel)]);
  }
  std::string names;
  for (const std::string& name : data.class_names) names += name + '\n';
  if (!names.empty()) write_file(directory / "batches.meta.txt", names);
  write_file(directory / (split == Split::test ? "test_batch.bin" : "data_batch_1.bin"), bytes);
}

}  // namespace rw
