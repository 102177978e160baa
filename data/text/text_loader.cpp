#include "data/text/text_loader.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/base/random.h"

namespace rw {

namespace {

BucketOrder order_of(std::span<const TextExample> examples, const TextLoaderOptions& options) {
  std::vector<uint64_t> lengths;
  for (const TextExample& example : examples) lengths.push_back(example.ids.size());
  return {"TextLoader",
          std::move(lengths),
          {.batch_size = options.batch_size,
           .shuffle = options.shuffle,
           .drop_last = options.drop_last,
           .bucket_batches = options.bucket_batches,
           .shard = options.shard,
           .shards = options.shards,
           .seed = options.seed}};
}

}  // namespace

TextLoader::TextLoader(std::span<const TextExample> examples, const Vocabulary& vocabulary,
                       TextLoaderOptions options)
    : examples_(examples),
      vocabulary_(vocabulary),
      options_(std::move(options)),
      order_(order_of(examples, options_)) {
  check(options_.length_multiple > 0, "TextLoader", "length_multiple must be positive, got {}",
        options_.length_multiple);
  for (const TextExample& example : examples)
    check(options_.fixed_length == 0 ||
              static_cast<int64_t>(example.ids.size()) <= options_.fixed_length,
          "TextLoader", "fixed_length must hold every example, got {} for one of {}",
          options_.fixed_length, example.ids.size());
  if (options_.masking) check_masking(*options_.masking);
}

TextBatch TextLoader::batch(int64_t epoch, int64_t index) {
  const auto chosen = order_.batch(epoch, index);
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
