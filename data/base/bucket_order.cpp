#include "data/base/bucket_order.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "data/base/random.h"

namespace rw {

namespace {

void shuffle(std::vector<uint32_t>& values, DataRandom& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

}  // namespace

BucketOrder::BucketOrder(const char* owner, std::vector<uint64_t> lengths,
                         const BucketOrderOptions& options)
    : owner_(owner), lengths_(std::move(lengths)), options_(options) {
  check(options_.batch_size > 0 && options_.bucket_batches > 0, owner,
        "batch_size and bucket_batches must be positive, got {} and {}", options_.batch_size,
        options_.bucket_batches);
  check(options_.shard >= 0 && options_.shard < options_.shards, owner,
        "shard must be in [0, {}), got {}", options_.shards, options_.shard);
  check(lengths_.size() <= std::numeric_limits<uint32_t>::max(), owner,
        "there must be at most 2^32 examples, got {}", lengths_.size());
  check(batches() > 0, owner,
        "there must be at least one batch of {} for each of {} shards, got {} examples",
        options_.batch_size, options_.shards, lengths_.size());
}

int64_t BucketOrder::all_batches() const {
  const auto n = static_cast<int64_t>(lengths_.size()), size = options_.batch_size;
  return options_.drop_last ? n / size : (n + size - 1) / size;
}

int64_t BucketOrder::batches() const {
  const int64_t all = all_batches();
  return options_.drop_last ? all / options_.shards
                            : (all - options_.shard + options_.shards - 1) / options_.shards;
}

// Shuffles sequences, sorts them by length one bucket at a time, cuts them into batches, and
// shuffles the batches.
void BucketOrder::order_for(int64_t epoch) {
  if (ordered_epoch_ == epoch) return;
  ordered_epoch_ = epoch;
  DataRandom random(options_.seed, static_cast<uint64_t>(epoch));
  order_.resize(lengths_.size());
  std::iota(order_.begin(), order_.end(), 0);
  batch_order_.resize(static_cast<size_t>(all_batches()));
  std::iota(batch_order_.begin(), batch_order_.end(), 0);
  if (options_.shuffle) shuffle(order_, random);
  if (options_.bucket_batches == 1) return;
  const auto bucket = static_cast<size_t>(options_.batch_size * options_.bucket_batches);
  for (size_t first = 0; first < order_.size(); first += bucket) {
    const auto part = std::span(order_).subspan(first, std::min(bucket, order_.size() - first));
    std::ranges::stable_sort(part, {}, [&](uint32_t i) { return lengths_[i]; });
  }
  if (options_.shuffle) shuffle(batch_order_, random);
}

std::span<const uint32_t> BucketOrder::batch(int64_t epoch, int64_t index) {
  check(epoch >= 0 && index >= 0 && index < batches(), owner_,
        "the batch index must be in [0, {}), got {} of epoch {}", batches(), index, epoch);
  order_for(epoch);
  const auto size = static_cast<size_t>(options_.batch_size);
  const size_t place = batch_order_[static_cast<size_t>(index * options_.shards + options_.shard)];
  const size_t first = place * size;
  return std::span(order_).subspan(first, std::min(size, order_.size() - first));
}

}  // namespace rw
