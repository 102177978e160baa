// How gradients are cut for messages.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "rewind/optim/parameters.h"

namespace rw {

// Gradients that go in one message, one after the other; in elements.
struct GradientBucket {
  int64_t begin = 0, end = 0;        // on the line
  std::vector<size_t> slots = {};    // the parameters, or the one of which this is a part
  std::vector<int64_t> bounds = {};  // of the parts that ranks own, and the end
  int64_t sum = 0;                   // where the own part begins among all that this rank owns

  int64_t size() const { return end - begin; }
  int64_t part(int rank) const {
    return bounds[static_cast<size_t>(rank) + 1] - bounds[static_cast<size_t>(rank)];
  }
  // Of the ranks' parts, in elements of so many bytes.
  std::vector<size_t> bytes(size_t element) const;
};

// A line of all gradients in the order in which they are expected, cut into buckets: each has as
// many whole gradients as fit it, or a part of one that is larger (Li et al. 2020, PyTorch
// Distributed). Of each bucket every rank owns a part, one as long as the other, or with a Shard
// what lies in it of the parameters whose states it keeps. All is a function of the parameters,
// their order and the number of ranks.
class GradientBuckets {
 public:
  // `order` has all slots. Buckets of at most `elements`, or 8 where that is less, as seen by rank
  // `rank` of `ranks`.
  GradientBuckets(const std::vector<FlatParameters::Slot>& slots, const std::vector<size_t>& order,
                  bool has_owners, int rank, int ranks, int64_t elements);

  const std::vector<GradientBucket>& all() const { return buckets_; }
  int64_t largest() const { return largest_; }  // elements of one
  int64_t owned() const { return owned_; }      // elements that this rank owns
  // Where the sum of a gradient that this rank owns as a whole begins among all that it owns.
  int64_t sum_of(size_t slot) const { return sums_[slot]; }

  // Elements of a gradient that lie in a bucket.
  struct Part {
    size_t slot = 0;
    int64_t source = 0, target = 0, size = 0;  // where in the gradient, where in the bucket
    int64_t room = 0;                          // until the next one: a multiple of 8
  };
  void each_part(const GradientBucket& bucket, const std::function<void(const Part&)>& use) const;

 private:
  void cut(const std::vector<size_t>& order, int64_t elements);
  void sort_by_owner(GradientBucket& bucket, const std::vector<FlatParameters::Slot>& slots,
                     int ranks) const;
  void place(GradientBucket& bucket, int rank);

  std::vector<int64_t> begins_, sizes_, sums_;  // of the slots
  std::vector<GradientBucket> buckets_;
  int64_t largest_ = 0, owned_ = 0;
};

}  // namespace rw
