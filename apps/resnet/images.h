// The images to train a ResNet on: photographs, CIFAR-10's images or synthetic ones.
#pragma once

#include <memory>

#include "../../data/base/dataset.h"
#include "../../data/images/loader.h"
#include "options.h"

namespace rw {

class Images {
 public:
  explicit Images(const ResNetOptions& options);  // whose photographs must outlive it

  int64_t train_size() const {
    return static_cast<int64_t>(photos_ ? photos_->train.size() : train_.size());
  }
  int64_t test_size() const {
    return static_cast<int64_t>(photos_ ? photos_->test.size() : test_.size());
  }
  // How many of those to test with could be read so far.
  int64_t readable_tests() const {
    return test_size() - (photos_ ? photos_->unreadable_tests() : 0);
  }
  // Returns batches that refer to the images here.
  std::unique_ptr<ImageBatches> training(const ResNetOptions& options) const;
  std::unique_ptr<ImageBatches> testing(int batch) const;
  uint64_t hash() const;  // of all contents; ValueError with --eval, which reads only some of them

  int classes = 0;
  std::vector<std::string> class_names;  // empty: unknown
  ChannelStatistics statistics;

 private:
  void load(const ResNetOptions& options);

  const PhotoFolder* const photos_;  // null: the images are these
  ImageDataset train_, test_;
  const int64_t image_;
};

}  // namespace rw
