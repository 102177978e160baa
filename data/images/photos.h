// Your own photographs: a folder of files for each class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "../base/dataset.h"
#include "image_file.h"

namespace rw {

// The files of one split. Pixels stay on the disk until a PhotoLoader needs them.
struct PhotoDataset {
  std::vector<std::filesystem::path> files;
  std::vector<int32_t> labels;            // [size], each in [0, classes)
  std::vector<std::string> class_names;   // names of the folders, sorted
  std::vector<ImageHeader> headers = {};  // of the files, once check_photos() has looked at them
  std::vector<std::string> notes = {};    // sentences: what list_photos() left out or found inside

  size_t size() const { return files.size(); }  // photographs
};

// The options of list_photos().
struct PhotoOptions {
  double test_share = 0.2;     // of each class, where the folder has no split of its own
  uint64_t split_seed = 0;     // which photographs these are
  bool refuse_others = false;  // files in class folders with other endings: an error, or a note
};

// Lists the images in FOLDER/CLASS (is_image_name()), including folders inside CLASS; names that
// begin with a dot are left out. Folders train or training, and val, valid, validation, dev, eval,
// test or testing (in any case of letters, also as training_set) are splits, which hold the folders
// of classes, if FOLDER has no others or if they hold no photographs themselves: one to train with,
// and the first of those others to test with. Without one to test with, every class is split by
// hashes of its names, so that adding a photograph moves few others. Nothing is opened. Throws
// FileError: no such folder, nothing to train with, fewer than two classes, a class without
// photographs, a name that is not UTF-8.
PhotoDataset list_photos(const std::filesystem::path& folder, Split split,
                         const PhotoOptions& options = {});

}  // namespace rw
