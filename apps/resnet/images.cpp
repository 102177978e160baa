#include "apps/resnet/images.h"

#include <algorithm>

#include "core/base/hash.h"
#include "data/base/files.h"
#include "data/content_hash.h"
#include "data/images/cifar.h"
#include "data/images/photo_loader.h"
#include "data/images/synthetic.h"

namespace rw {

Images::Images(const ResNetOptions& options) : photos_(options.photos()), image_(options.image) {
  if (!photos_) {
    load(options);
    return;
  }
  class_names = photos_->train.class_names;
  classes = static_cast<int>(class_names.size());
  statistics = imagenet_statistics();
}

void Images::load(const ResNetOptions& options) {
  // Synthetic images, as many as two CPU cores train on in a minute or two.
  const std::filesystem::path folder =
      options.data.empty()
          ? synthetic_cifar10(synthetic_data_directory(), {.train = 4800, .test = 1000})
          : std::filesystem::path(options.data);
  train_ = load_cifar10(folder, Split::train);
  test_ = load_cifar10(folder, Split::test);
  class_names = train_.class_names;
  classes = train_.classes;
  statistics = channel_statistics(train_);
}

std::unique_ptr<ImageBatches> Images::training(const ResNetOptions& options) const {
  const auto batch = static_cast<int>(std::min(options.batch, train_size()));
  const bool drop_last = train_size() > batch;
  if (photos_)
    return std::make_unique<PhotoLoader>(photos_->train,
                                         PhotoLoaderOptions{.batch_size = batch,
                                                            .image = static_cast<int>(image_),
                                                            .shuffle = true,
                                                            .drop_last = drop_last,
                                                            .augment = true,
                                                            .seed = options.seed,
                                                            .faults = photos_->faults()});
  return std::make_unique<Loader>(train_,
                                  LoaderOptions{.batch_size = batch,
                                                .shuffle = true,
                                                .drop_last = drop_last,
                                                .crop_padding = options.data.empty() ? 0 : 4,
                                                .flip = true,
                                                .mean = statistics.mean,
                                                .std = statistics.std,
                                                .seed = options.seed});
}

std::unique_ptr<ImageBatches> Images::testing(int batch) const {
  if (photos_)
    return std::make_unique<PhotoLoader>(
        photos_->test,
        PhotoLoaderOptions{
            .batch_size = batch, .image = static_cast<int>(image_), .faults = photos_->faults()});
  return std::make_unique<Loader>(
      test_, LoaderOptions{.batch_size = batch, .mean = statistics.mean, .std = statistics.std});
}

uint64_t Images::hash() const {
  if (photos_) return fnv1a(content_hash(photos_->train), content_hash(photos_->test));
  return fnv1a(content_hash(train_), content_hash(test_));
}

}  // namespace rw
