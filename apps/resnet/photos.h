// A folder of photographs, looked through before the first step.
#pragma once

#include <string>
#include <vector>

#include "../../data/images/photo_check.h"
#include "../../data/images/photo_loader.h"

namespace rw {

// How to read a folder.
struct PhotoFolderOptions {
  double test_share = 0.2;
  bool strict = false;  // a photograph that cannot be read is an error
  bool trains = true;   // the photographs to train with are needed
  bool quiet = false;
};

// The photographs of both splits whose headers can be read.
class PhotoFolder {
 public:
  // Warns of what is not read.
  PhotoFolder(const std::string& folder, const PhotoFolderOptions& options);

  // The classes and their photographs, the splits, and their sizes beside that of what the model
  // sees: "2 classes: a (120), b (118); ...".
  std::string str(int64_t image) const;
  // The number of pixels that the shorter side has in half of the photographs, or more.
  int usual_side() const;
  // Counts and names all that was left out, if anything was.
  void tell_left_out() const;
  // How many of the photographs to test with could not be decoded so far.
  int64_t unreadable_tests() const;

  PhotoDataset train, test;
  PhotoFaults* faults() const { return strict_ ? nullptr : &faults_; }  // null: they are errors

 private:
  void look(PhotoDataset& data, const std::string& cache, bool quiet);

  bool strict_;
  std::vector<std::string> left_out_;  // for their headers
  mutable PhotoFaults faults_;
};

// Looks through photographs as check_photos() does, with a sign of life, and warns of those that
// are left out, whose faults it returns on the first rank.
std::vector<std::string> look_through(PhotoDataset& data, PhotoCheck check, bool quiet);

}  // namespace rw
