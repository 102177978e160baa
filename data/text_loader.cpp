#include "rewind/data/text_loader.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "rewind/core/base/error.h"
#include "rewind/data/random.h"

namespace rw {

namespace {

void shuffle(std::vector<uint32_t>& values, DataRandom& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

}  // namespace

TextLoader::TextLoader(std::span<const TextExample> examples, const Vocabulary& vocabulary,
                       TextLoaderOptions options)
    : examples_(examples), vocabulary_(vocabulary), options_(std::move(options)) {
  check(options_.batch_size > 0 && options_.bucket_batches > 0 && options_.length_multiple > 0,
        "TextLoader",
        "batch_size, bucket_batches and length_multiple must be positive, got {}, {} and {}",
        options_.batch_size, options_.bucket_batches, options_.length_multiple);
  check(options_.shard >= 0 && options_.shard < options_.shards, "TextLoader",
        "shard must be in [0, {}), got {}", options_.shards, options_.shard);
  check(examples.size() <= std::numeric_limits<uint32_t>::max(), "TextLoader",
        "there must be at most 2^32 examples, got {}", examples.size());
  check(batches() > 0, "TextLoader",
        "there must be at least one batch of {} for each of {} shards, got {} examples",
        options_.batch_size, options_.shards, examples.size());
  for (const TextExample& example : examples)
    check(options_.fixed_length == 0 ||
              static_cast<int64_t>(example.ids.size()) <= options_.fixed_length,
          "TextLoader", "fixed_length must hold every example, got {} for one of {}",
          options_.fixed_length, example.ids.size());
  if (options_.masking) check_masking(*options_.masking);
}

int64_t TextLoader::all_batches() const {
  const auto n = static_cast<int64_t>(examples_.size()), size = options_.batch_size;
  return options_.drop_last ? n / size : (n + size - 1) / size;
}

int64_t TextLoader::batches() const {
  const int64_t all = all_batches();
  return options_.drop_last ? all / options_.shards
                            : (all - options_.shard + options_.shards - 1) / options_.shards;
}

// Shuffled examples, sorted by length a bucket at a time, cut into batches, those shuffled.
void TextLoader::order_for(int64_t epoch) {
  if (ordered_epoch_ == epoch) return;
  ordered_epoch_ = epoch;
  DataRandom random(options_.seed, static_cast<uint64_t>(epoch));
  order_.resize(examples_.size());
  std::iota(order_.begin(), order_.end(), 0);
  batch_order_.resize(static_cast<size_t>(all_batches()));
  std::iota(batch_order_.begin(), batch_order_.end(), 0);
  if (options_.shuffle) shuffle(order_, random);
  if (options_.bucket_batches == 1) return;
  const auto bucket = static_cast<size_t>(options_.batch_size * options_.bucket_batches);
  for (size_t first = 0; first < order_.size(); first += bucket) {
    const auto part = std::span(order_).subspan(first, std::min(bucket, order_.size() - first));
    std::ranges::stable_sort(part, {}, [&](uint32_t i) { return examples_[i].ids.size(); });
  }
  if (options_.shuffle) shuffle(batch_order_, random);
}

TextBatch TextLoader::batch(int64_t epoch, int64_t index) {
  check(epoch >= 0 && index >= 0 && index < batches(), "TextLoader",
        "the batch index must be in [0, {}), got {} of epoch {}", batches(), index, epoch);
  order_for(epoch);
  const auto size = static_cast<size_t>(options_.batch_size);
  const size_t place = batch_order_[static_cast<size_t>(index * options_.shards + options_.shard)];
  const size_t first = place * size;
  const auto chosen = std::span(order_).subspan(first, std::min(size, order_.size() - first));

  TextBatch batch;
  batch.rows = static_cast<int64_t>(chosen.size());
  for (const uint32_t i : chosen)
    batch.length = std::max(batch.length, static_cast<int64_t>(examples_[i].ids.size()));
  const int64_t multiple = options_.length_multiple;
  batch.length = options_.fixed_length > 0 ? options_.fixed_length
                                           : (batch.length + multiple - 1) / multiple * multiple;
  const auto length = static_cast<size_t>(batch.length), cells = chosen.size() * length;
  batch.ids.assign(cells, vocabulary_.pad);
  batch.token_types.assign(cells, 0);
  batch.mask.assign(cells, 0);
  if (options_.masking) batch.targets.assign(cells, -100);
  for (size_t row = 0; row < chosen.size(); ++row) {
    const TextExample& example = examples_[chosen[row]];
    const size_t count = example.ids.size();
    const auto at = static_cast<ptrdiff_t>(row * length);
    const auto ids = std::span(batch.ids).subspan(row * length, count);
    std::ranges::copy(example.ids, ids.begin());
    std::fill_n(batch.token_types.begin() + at + example.second,
                static_cast<int64_t>(count) - example.second, 1);
    std::fill_n(batch.mask.begin() + at, count, 1);
    batch.lengths.push_back(static_cast<int32_t>(count));
    batch.labels.push_back(example.label);
    if (!options_.masking) continue;
    const auto targets = mask_tokens(
        ids, vocabulary_, *options_.masking,
        DataRandom(options_.seed, static_cast<uint64_t>(epoch), uint64_t{chosen[row]} + 1));
    std::ranges::copy(targets, batch.targets.begin() + at);
    batch.predictions += std::ranges::count_if(targets, [](int32_t t) { return t != -100; });
  }
  return batch;
}

}  // namespace rw
