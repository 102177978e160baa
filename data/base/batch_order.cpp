#include "data/base/batch_order.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "data/base/random.h"

namespace rw {

BatchOrder::BatchOrder(const BatchOrderOptions& options) : options_(options) {
  check(options.batch_size > 0, "Loader", "batch_size must be positive, got {}",
        options.batch_size);
  check(options.samples <= std::numeric_limits<uint32_t>::max(), "Loader",
        "there must be less than 2^32 samples, got {}", options.samples);
  check(batches() > 0, "Loader", "there must be at least one batch of {}, got {} samples",
        options.batch_size, options.samples);
  order_.resize(options.samples);
}

int64_t BatchOrder::batches() const {
  const auto n = static_cast<int64_t>(options_.samples), size = options_.batch_size;
  return n / size + (n % size && !options_.drop_last);
}

std::span<const uint32_t> BatchOrder::batch(int64_t epoch, int64_t index) {
  check(epoch >= 0 && index >= 0 && index < batches(), "Loader",
        "the batch index must be in [0, {}), got {} of epoch {}", batches(), index, epoch);
  order_for(epoch);
  const auto size = static_cast<size_t>(options_.batch_size);
  const size_t first = static_cast<size_t>(index) * size;
  return std::span(order_).subspan(first, std::min(size, order_.size() - first));
}

// A Fisher-Yates shuffle with the epoch's own stream.
void BatchOrder::order_for(int64_t epoch) {
  if (ordered_epoch_ == epoch) return;
  ordered_epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.shuffle) return;
  DataRandom random(options_.seed, static_cast<uint64_t>(epoch));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

}  // namespace rw
