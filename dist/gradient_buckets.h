// Cuts gradients into messages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "../optim/base/ownership.h"

namespace rw {

// Gradients that travel in one message, one after the other; in elements.
struct GradientBucket {
  int64_t begin = 0, end = 0;        // on the line
  std::vector<size_t> slots = {};    // the parameters, or the one of which this is a part
  std::vector<int64_t> bounds = {};  // of the parts that ranks own, and the end
  int64_t sum = 0;                   // where the own part begins among all that this rank owns

  int64_t size() const { return end - begin; }
  int64_t part(int rank) const {
    return bounds[static_cast<size_t>(rank) + 1] - bounds[static_cast<size_t>(rank)];
  }
  // The sizes of the ranks' parts, for elements of this many bytes.
  std::vector<size_t> bytes(size_t element) const;
};

// All gradients in the order in which they are expected, cut into buckets: each has as many whole
// gradients as fit, or a part of a larger one (Li et al. 2020, PyTorch Distributed). Every rank
// owns a part of each bucket, all of equal length, or with a Shard the elements in it whose states
// the rank keeps. All of this is a function of the parameters, their order and the number of ranks.
class GradientBuckets {
 public:
  // Takes the sizes of the gradients, all of which are in `order`. Makes buckets of at most
  // `elements`, or 8 if that is less, as rank `rank` of `ranks` sees them; `owners` is empty, or
  // has those of a Shard.
  GradientBuckets(std::vector<int64_t> sizes, const std::vector<size_t>& order,
                  const std::optional<Ownership>& owners, int rank, int ranks, int64_t elements);

  const std::vector<GradientBucket>& all() const { return buckets_; }
  int64_t largest() const { return largest_; }  // elements of one
  int64_t owned() const { return owned_; }      // elements that this rank owns
  // With a Shard: where the sum of this rank's part of a gradient begins among all that it owns.
  int64_t sum_of(size_t slot) const { return sums_[slot]; }

  // The elements of a gradient that lie in a bucket, and with a Shard belong to one rank.
  struct Part {
    size_t slot = 0;
    int64_t source = 0, target = 0, size = 0;  // where in the gradient, where in the bucket
    int64_t room = 0;                          // until the next one: a multiple of 8
    int owner = 0;                             // with a Shard
  };
  void each_part(const GradientBucket& bucket, const std::function<void(const Part&)>& use) const;

 private:
  void cut(const std::vector<size_t>& order, int64_t elements);
  void sort_by_owner(GradientBucket& bucket, int ranks);
  void place(GradientBucket& bucket, int rank);

  std::vector<int64_t> begins_, sizes_, sums_;  // of the slots
  std::optional<Ownership> owners_;
  std::vector<GradientBucket> buckets_;
  int64_t largest_ = 0, owned_ = 0;
};

}  // namespace rw
