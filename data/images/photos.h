// Your own photographs: a folder of PNG and JPEG files for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "../base/dataset.h"

namespace rw {

// The files of one split. Pixels stay on the disk until a PhotoLoader needs them.
struct PhotoDataset {
  std::vector<std::filesystem::path> files;
  std::vector<int32_t> labels;           // [size], each in [0, classes)
  std::vector<std::string> class_names;  // names of the folders, sorted
  std::vector<uint64_t> hashes = {};     // of the files' bytes, once check_photos() has seen them

  size_t size() const { return files.size(); }  // photographs
};

// The options of list_photos().
struct PhotoOptions {
  double test_share = 0.2;     // of each class, where the folder has no split of its own
  uint64_t split_seed = 0;     // which photographs these are
  bool refuse_others = false;  // files in class folders with other endings: an error, or ignored
};

// Lists FOLDER/CLASS/*.{png,jpg,jpeg}, including folders inside CLASS; names that begin with a dot
// are left out. FOLDER/train/CLASS and FOLDER/val/CLASS (or test/CLASS) are a split; otherwise
// every class is split by hashes of its names, so that adding a photograph moves few others.
// Nothing is opened. Throws FileError: no such folder, fewer than two classes, a class without
// photographs, a name that is not UTF-8.
PhotoDataset list_photos(const std::filesystem::path& folder, Split split,
                         const PhotoOptions& options = {});

// How to treat photographs that cannot be read.
enum class BadPhotos {
  are_refused,  // an error names the first
  are_skipped,  // the data set goes without them
};

// Decodes every photograph once, on all cores, so that none can stop a training later. The first
// one that cannot be read is a FileError that names it; or all of them are removed, and their
// faults are returned.
std::vector<std::string> check_photos(PhotoDataset& data, BadPhotos bad = BadPhotos::are_refused);

}  // namespace rw
