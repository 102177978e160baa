// The sequences of a batch whose lengths are to be similar, as a pure function of (seed, epoch,
// index).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rw {

// How sequences become batches.
struct BucketOrderOptions {
  int64_t batch_size = 32;        // sequences per batch
  bool shuffle = true;            // another order in every epoch
  bool drop_last = false;         // leave out a last batch that is not full
  int64_t bucket_batches = 1;     // sort by length within this many batches: less padding
  int64_t shard = 0, shards = 1;  // this reader's share: each batch goes to one reader
  uint64_t seed = 0;              // of the order
};

// The batches of every epoch, by numbers of sequences.
class BucketOrder {
 public:
  // `lengths` are those of the sequences; `owner` names itself in errors. ValueError for options
  // that do not go together, and if there is no batch.
  BucketOrder(const char* owner, std::vector<uint64_t> lengths, const BucketOrderOptions& options);

  int64_t batches() const;  // of this shard per epoch; equal among shards with drop_last
  // Batch `index`, in [0, batches()), of an epoch from 0 on; ValueError otherwise. Valid until
  // another epoch is asked for.
  std::span<const uint32_t> batch(int64_t epoch, int64_t index);

 private:
  int64_t all_batches() const;
  void order_for(int64_t epoch);

  const char* owner_;
  std::vector<uint64_t> lengths_;
  BucketOrderOptions options_;
  int64_t ordered_epoch_ = -1;
  std::vector<uint32_t> order_;        // sequences, batch by batch
  std::vector<uint32_t> batch_order_;  // of the batches of all shards
};

}  // namespace rw
