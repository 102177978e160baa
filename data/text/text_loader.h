// Padded batches of token sequences, each a pure function of (seed, epoch, index).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "../base/bucket_order.h"
#include "mlm.h"
#include "text_examples.h"

namespace rw {

// How examples become batches.
struct TextLoaderOptions {
  int64_t batch_size = 32;        // examples per batch
  bool shuffle = true;            // another order in every epoch
  bool drop_last = false;         // leave out a last batch that is not full
  int64_t bucket_batches = 1;     // sort by length within this many batches: less padding
  int64_t length_multiple = 8;    // padded lengths are multiples of this
  int64_t fixed_length = 0;       // pad every batch to this length; 0: to its longest sequence
  int64_t shard = 0, shards = 1;  // this reader's share: each batch goes to one reader
  std::optional<MaskingOptions> masking = std::nullopt;  // none: no targets
  uint64_t seed = 0;                                     // of order and masks
};

// Some examples, padded to one length. Row-major [rows, length] unless stated.
struct TextBatch {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> ids;          // [PAD] behind the end
  std::vector<int32_t> token_types;  // 1 in the second text
  std::vector<int32_t> mask;         // 1 for tokens, 0 for padding
  std::vector<int32_t> lengths;      // [rows], tokens
  std::vector<int32_t> targets;      // of masked tokens, -100 elsewhere; empty without masking
  std::vector<int32_t> labels;       // [rows], TextExample::label
  int64_t predictions = 0;           // targets that are not -100
};

// Makes batches of examples, any at any time.
class TextLoader {
 public:
  // Examples and vocabulary must outlive the loader. ValueError for options that do not go
  // together.
  TextLoader(std::span<const TextExample> examples, const Vocabulary& vocabulary,
             TextLoaderOptions options);

  // The batches of this shard per epoch. With drop_last all shards have equally many.
  int64_t batches() const { return order_.batches(); }
  uint64_t seed() const { return options_.seed; }  // TextLoaderOptions::seed
  // Batch `index`, in [0, batches()), of an epoch from 0 on. ValueError otherwise.
  TextBatch batch(int64_t epoch, int64_t index);

 private:
  std::span<const TextExample> examples_;
  const Vocabulary& vocabulary_;
  TextLoaderOptions options_;
  BucketOrder order_;
};

}  // namespace rw
