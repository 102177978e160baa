#include "apps/resnet/images.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/hash.h"
#include "data/base/files.h"
#include "data/content_hash.h"
#include "data/images/cifar.h"
#include "data/images/photo_loader.h"
#include "data/images/synthetic.h"

namespace rw {

Images::Images(const ResNetOptions& options)
    : has_photos_(options.has_photos()), image_(options.image) {
  if (has_photos_)
    list(options);
  else
    load(options);
}

void Images::list(const ResNetOptions& options) {
  const PhotoOptions how{.test_share = options.test_share};
  train_photos_ = list_photos(options.data, Split::train, how);
  test_photos_ = list_photos(options.data, Split::test, how);
  if (!options.quiet)
    fmt::print("looking through {} photographs of {} classes\n",
               (options.eval ? 0 : train_photos_.size()) + test_photos_.size(),
               train_photos_.class_names.size());
  if (!options.eval) check_photos(train_photos_, options);
  check_photos(test_photos_, options);
  class_names = train_photos_.class_names;
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
  if (has_photos_)
    return std::make_unique<PhotoLoader>(train_photos_,
                                         PhotoLoaderOptions{.batch_size = batch,
                                                            .image = static_cast<int>(image_),
                                                            .shuffle = true,
                                                            .drop_last = drop_last,
                                                            .augment = true,
                                                            .seed = options.seed});
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
  if (has_photos_)
    return std::make_unique<PhotoLoader>(
        test_photos_, PhotoLoaderOptions{.batch_size = batch, .image = static_cast<int>(image_)});
  return std::make_unique<Loader>(
      test_, LoaderOptions{.batch_size = batch, .mean = statistics.mean, .std = statistics.std});
}

uint64_t Images::hash() const {
  if (has_photos_) return fnv1a(content_hash(train_photos_), content_hash(test_photos_));
  return fnv1a(content_hash(train_), content_hash(test_));
}

void check_photos(PhotoDataset& photos, const ResNetOptions& options) {
  const auto skipped =
      check_photos(photos, options.skip_bad ? BadPhotos::are_skipped : BadPhotos::are_refused);
  constexpr size_t most = 10;
  for (size_t i = 0; i < std::min(most, skipped.size()); ++i)
    warn(fmt::format("left out: {}", skipped[i]));
  if (skipped.size() > most) warn(fmt::format("{} more are left out", skipped.size() - most));
}

}  // namespace rw
