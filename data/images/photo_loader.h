// Batches of photographs at a model's size, each a pure function of (seed, epoch, index) and the
// files.
#pragma once

#include <map>
#include <mutex>

#include "loader.h"
#include "photos.h"

namespace rw {

// The statistics of ImageNet, which most models for photographs are trained with.
ChannelStatistics imagenet_statistics();

// Photographs that could not be decoded. Any thread may add to it.
class PhotoFaults {
 public:
  void add(const std::filesystem::path& file, const std::string& fault);  // the first one counts
  std::map<std::filesystem::path, std::string> all() const;               // the fault of each file

 private:
  mutable std::mutex mutex_;
  std::map<std::filesystem::path, std::string> faults_;
};

// How photographs become batches.
struct PhotoLoaderOptions {
  int64_t batch_size = 32;  // photographs
  int image = 224;          // height and width of what the model sees
  bool shuffle = false;     // another order in every epoch
  bool drop_last = false;   // leave out a last batch that is not full
  bool augment = false;     // random_crop()s that are magnified twice at most, half of them
                            // mirrored; else centre_crop()
  ChannelStatistics statistics = imagenet_statistics();  // that pixels are normalised by
  uint64_t seed = 0;                                     // of order and augmentation
  int threads = 0;                                       // that decode; 0: one per core
  // Where photographs are noted that cannot be decoded, without which their batches then are; null:
  // they are errors. It must outlive the loader.
  PhotoFaults* faults = nullptr;
};

// Files are read and decoded when their batch is asked for, in the thread that asks (for example a
// BatchStream's) and helpers: one decoded photograph per thread is in memory, and the batch.
class PhotoLoader : public ImageBatches {
 public:
  // `data` must outlive the loader. Throws ValueError.
  PhotoLoader(const PhotoDataset& data, PhotoLoaderOptions options);

  int64_t batches() const override { return order_.batches(); }
  uint64_t seed() const override { return options_.seed; }
  // In place of a batch without any photograph that can be decoded, the next one that has some is
  // given. Throws FileError for a file that cannot be read, unless faults are noted, and if no
  // photograph can be decoded.
  Batch batch(int64_t epoch, int64_t index) override;

 private:
  Batch readable(int64_t epoch, int64_t index);  // perhaps with fewer photographs
  void load(size_t i, int64_t epoch, float* out) const;

  const PhotoDataset& data_;
  PhotoLoaderOptions options_;
  BatchOrder order_;
};

}  // namespace rw
