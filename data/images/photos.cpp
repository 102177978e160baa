#include "data/images/photos.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <tuple>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/base/files.h"
#include "data/base/parallel.h"
#include "data/base/unicode.h"
#include "data/images/image_file.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

bool is_photo(const fs::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_folder(entry.path()) && !is_hidden(entry.path())) found.push_back(entry.path());
  std::ranges::sort(found, {}, [](const fs::path& p) { return p.filename().native(); });
  return found;
}

// The photographs of a class, sorted.
std::vector<fs::path> photos_in(const fs::path& folder, const PhotoOptions& options) {
  std::vector<fs::path> found;
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::end(at); ++at) {
    const fs::path& path = at->path();
    const bool is_directory = is_folder(path);
    if (is_hidden(path)) {
      if (is_directory) at.disable_recursion_pending();
    } else if (is_photo(path) && !is_directory) {
      found.push_back(path);
    } else {
      check<FileError>(is_directory || !options.refuse_others, "list_photos",
                       "'{}' must be a PNG or JPEG file, got another ending; remove it",
                       path.string());
    }
  }
  std::ranges::sort(
      found, {}, [](const fs::path& p) -> const auto& { return p.native(); });
  check<FileError>(!found.empty(), "list_photos",
                   "'{}' must hold PNG or JPEG files of its class, got none; add some, or remove "
                   "the folder",
                   folder.string());
  return found;
}

// The photographs of a class that belong to a split: the ones with the lowest hashes are for
// testing.
std::vector<fs::path> part_of(const fs::path& folder, std::vector<fs::path> files, Split split,
                              const PhotoOptions& options) {
  const size_t n = files.size();
  const auto wanted = static_cast<size_t>(std::lround(options.test_share * static_cast<double>(n)));
  const size_t tested = n > 1 && options.test_share > 0 ? std::clamp<size_t>(wanted, 1, n - 1) : 0;
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < n; ++i) {
    const std::string name = folder.filename() / files[i].lexically_relative(folder);
    order.emplace_back(splitmix64(fnv1a(std::as_bytes(std::span(name))) ^ options.split_seed), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> is_test(n);
  for (size_t i = 0; i < tested; ++i) is_test[order[i].second] = true;
  std::vector<fs::path> part;
  for (size_t i = 0; i < n; ++i)
    if (is_test[i] == (split == Split::test)) part.push_back(std::move(files[i]));
  return part;
}

// The folders whose subfolders are classes: one, or one for each split.
struct Roots {
  fs::path train, test;  // test: empty where train is to be split
};

Roots roots_of(const fs::path& folder) {
  if (!is_folder(folder / "train")) return {folder, {}};
  for (const char* name : {"val", "test"})
    if (is_folder(folder / name)) return {folder / "train", folder / name};
  return {folders_in(folder).size() == 1 ? folder / "train" : folder, {}};
}

std::vector<std::string> class_names_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders_in(root)) {
    names.push_back(folder.filename().string());
    check<FileError>(is_valid_utf8(names.back()), "list_photos",
                     "'{}' must have a name in UTF-8, as it is that of a class; rename it",
                     folder.string());
  }
  check<FileError>(names.size() > 1, "list_photos",
                   "'{}' must hold folders of 2 classes or more, got {}; put the photographs of "
                   "each class in a folder of its name",
                   root.string(), names.size());
  return names;
}

PhotoDataset list_split(const fs::path& folder, Split split, const PhotoOptions& options) {
  const Roots roots = roots_of(folder);
  PhotoDataset data{.class_names = class_names_in(roots.train)};
  const bool own_split = !roots.test.empty();
  const fs::path& root = own_split && split == Split::test ? roots.test : roots.train;
  for (const fs::path& of_class : folders_in(root)) {
    const auto found = std::ranges::find(data.class_names, of_class.filename().string());
    check<FileError>(found != data.class_names.end(), "list_photos",
                     "'{}' must be one of the classes of '{}', got another; remove it",
                     of_class.string(), roots.train.string());
    std::vector<fs::path> files = photos_in(of_class, options);
    if (!own_split) files = part_of(of_class, std::move(files), split, options);
    for (fs::path& file : files) {
      data.files.push_back(std::move(file));
      data.labels.push_back(static_cast<int32_t>(found - data.class_names.begin()));
    }
  }
  check<FileError>(data.size() > 0, "list_photos",
                   "'{}' must hold photographs to test with, got none; add more, or a folder val",
                   root.string());
  return data;
}

}  // namespace

PhotoDataset list_photos(const fs::path& folder, Split split, const PhotoOptions& options) {
  check(options.test_share >= 0 && options.test_share < 1, "list_photos",
        "test_share must be in [0, 1), got {}", options.test_share);
  check<FileError>(is_folder(folder), "list_photos", "'{}' must be a folder of photographs, got {}",
                   folder.string(), fs::exists(folder) ? "a file" : "nothing");
  try {
    return list_split(folder, split, options);
  } catch (const fs::filesystem_error& error) {
    fail<FileError>("list_photos", "'{}' must be readable, got: {}", folder.string(), error.what());
  }
}

std::vector<std::string> check_photos(PhotoDataset& data, BadPhotos bad) {
  std::vector<std::string> faults(data.size());
  data.hashes.resize(data.size());
  parallel_for(data.size(), 0, [&](size_t i) {
    try {
      load_image(data.files[i], 1);
      data.hashes[i] = file_hash(data.files[i]);
    } catch (const FileError& error) {
      if (bad == BadPhotos::are_refused) throw;
      faults[i] = error.what();
    }
  });
  PhotoDataset good{.class_names = data.class_names};
  std::vector<bool> has_photos(data.class_names.size());
  for (size_t i = 0; i < data.size(); ++i) {
    if (!faults[i].empty()) continue;
    good.files.push_back(data.files[i]);
    good.labels.push_back(data.labels[i]);
    good.hashes.push_back(data.hashes[i]);
    has_photos.at(static_cast<size_t>(data.labels[i])) = true;
  }
  std::vector<std::string> found;
  for (size_t i = 0; i < data.size(); ++i) {
    if (faults[i].empty()) continue;
    const auto label = static_cast<size_t>(data.labels[i]);
    check<FileError>(has_photos[label], "check_photos",
                     "the class '{}' must have a photograph that can be read, got none: {}",
                     data.class_names[label], faults[i]);
    found.push_back(std::move(faults[i]));
  }
  data = std::move(good);
  return found;
}

}  // namespace rw
