// The batches of a loader that belong to one rank.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

namespace rw {

// Every `ranks`-th batch of `source`, counted through all epochs, from number `rank` on: its batch
// i is number i * ranks + rank. Epochs have as many batches as the source's, or fewer. With one
// rank it is the source without an end. The source must outlive it.
template <class Source>
class RankBatches {
 public:
  // The type of a batch.
  using Batch = decltype(std::declval<Source&>().batch(0, 0));

  // `batches` per epoch; 0: all.
  RankBatches(Source& source, int64_t rank, int64_t ranks, int64_t batches = 0)
      : source_(source),
        rank_(rank),
        ranks_(ranks),
        batches_(batches > 0 ? batches : source.batches()) {}

  int64_t batches() const { return std::numeric_limits<int64_t>::max(); }  // it has no end
  uint64_t seed() const { return source_.seed(); }                         // the source's
  // Batch `index`, from 0 on; there is only one epoch.
  Batch batch(int64_t, int64_t index) {
    const int64_t number = index * ranks_ + rank_;
    return source_.batch(number / batches_, number % batches_);
  }

 private:
  Source& source_;
  const int64_t rank_, ranks_, batches_;
};

}  // namespace rw
