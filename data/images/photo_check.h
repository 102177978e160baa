// Looks through photographs before a training, so that it does not end with one that is none.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "photos.h"

namespace rw {

// How to treat photographs that cannot be read.
enum class BadPhotos {
  are_refused,  // an error names the first
  are_skipped,  // the data set goes without them
};

// The options of check_photos().
struct PhotoCheck {
  BadPhotos bad = BadPhotos::are_refused;  // those that cannot be read
  bool decodes = false;                    // every file is decoded, instead of only its header read
  // A file of the user's cache for what headers say, so that files that did not change are not
  // opened a second time; empty: none.
  std::string cache = {};
  std::function<void(size_t)> progress = {};  // called with the number of files so far, in threads
};

// Reads the headers of all photographs, on all cores, and puts them into `data`. The first file
// that cannot be read is a FileError that names it; or all of them are removed, and their faults
// are returned. A file that is damaged further on is found when it is decoded.
std::vector<std::string> check_photos(PhotoDataset& data, const PhotoCheck& options = {});

}  // namespace rw
