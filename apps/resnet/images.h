// The images to train a ResNet on: photographs, CIFAR-10's images or synthetic ones.
#pragma once

#include <memory>

#include "../../data/base/dataset.h"
#include "../../data/images/loader.h"
#include "../../data/images/photos.h"
#include "options.h"

namespace rw {

class Images {
 public:
  explicit Images(const ResNetOptions& options);

  int64_t train_size() const { return static_cast<int64_t>(train_.size() + train_photos_.size()); }
  int64_t test_size() const { return static_cast<int64_t>(test_.size() + test_photos_.size()); }
  // Returns batches that refer to the images here.
  std::unique_ptr<ImageBatches> training(const ResNetOptions& options) const;
  std::unique_ptr<ImageBatches> testing(int batch) const;
  uint64_t hash() const;  // of all contents; ValueError with --eval, which reads only some of them

  int classes = 0;
  std::vector<std::string> class_names;  // empty: unknown
  ChannelStatistics statistics;

 private:
  void list(const ResNetOptions& options);
  void load(const ResNetOptions& options);

  // Only one kind is used, and the others are empty.
  ImageDataset train_, test_;
  PhotoDataset train_photos_, test_photos_;
  const bool has_photos_;
  const int64_t image_;
};

// Checks the photographs that were listed, as --skip-bad-images asks for.
void check_photos(PhotoDataset& photos, const ResNetOptions& options);

}  // namespace rw
