// The samples of a batch, as a pure function of (seed, epoch, index).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rw {

// How samples become batches.
struct BatchOrderOptions {
  size_t samples = 0;      // of the data set
  int64_t batch_size = 1;  // samples
  bool shuffle = false;    // another order in every epoch
  bool drop_last = false;  // leave out a last batch that is not full
  uint64_t seed = 0;       // of the order
};

// The batches of every epoch, by numbers of samples.
class BatchOrder {
 public:
  // Throws ValueError if there is no batch.
  explicit BatchOrder(const BatchOrderOptions& options);

  int64_t batches() const;  // per epoch
  // Valid until another epoch is asked for. Throws ValueError for an index that does not exist.
  std::span<const uint32_t> batch(int64_t epoch, int64_t index);

 private:
  void order_for(int64_t epoch);

  BatchOrderOptions options_;
  int64_t ordered_epoch_ = -1;
  std::vector<uint32_t> order_;
};

}  // namespace rw
