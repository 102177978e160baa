#include "dist/gradient_buckets.h"

#include <algorithm>
#include <utility>

namespace rw {

namespace {

constexpr int64_t unit = 8;  // where gradients and parts begin: kernels read so many at once

int64_t room_of(int64_t size) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace

std::vector<size_t> GradientBucket::bytes(size_t element) const {
  std::vector<size_t> bytes;
  for (size_t rank = 0; rank + 1 < bounds.size(); ++rank)
    bytes.push_back(static_cast<size_t>(bounds[rank + 1] - bounds[rank]) * element);
  return bytes;
}

GradientBuckets::GradientBuckets(std::vector<int64_t> sizes, const std::vector<size_t>& order,
                                 const std::optional<Ownership>& owners, int rank, int ranks,
                                 int64_t elements)
    : begins_(sizes.size()), sizes_(std::move(sizes)), sums_(sizes_.size(), -1), owners_(owners) {
  cut(order, std::max<int64_t>(elements / unit, 1) * unit);
  for (GradientBucket& bucket : buckets_) {
    if (owners_)
      sort_by_owner(bucket, ranks);
    else
      for (int64_t r = 0; r <= ranks; ++r)
        bucket.bounds.push_back(bucket.begin + bucket.size() / unit * r / ranks * unit);
    place(bucket, rank);
  }
  for (int64_t& sum : sums_) sum = std::max<int64_t>(sum, 0);
}

void GradientBuckets::cut(const std::vector<size_t>& order, int64_t elements) {
  int64_t line = 0;
  bool is_open = false;  // the last bucket may have more gradients
  for (const size_t slot : order) {
    const int64_t room = room_of(sizes_[slot]);
    if (room == 0) continue;
    begins_[slot] = line;
    if (is_open && buckets_.back().size() + room <= elements) {
      buckets_.back().end += room;
      buckets_.back().slots.push_back(slot);
    } else {
      for (int64_t at = 0; at < room; at += elements)
        buckets_.push_back({line + at, line + std::min(at + elements, room), {slot}});
      is_open = room <= elements;
    }
    line += room;
  }
}

// Ranks own the parameters in order. A bucket of whole gradients has them in this order from now
// on; a bucket with a part of a gradient begins at the cut.
void GradientBuckets::sort_by_owner(GradientBucket& bucket, int ranks) {
  std::ranges::sort(bucket.slots);
  if (bucket.slots.size() > 1) {
    int64_t at = bucket.begin;
    for (const size_t slot : bucket.slots)
      begins_[slot] = std::exchange(at, at + room_of(sizes_[slot]));
  }
  bucket.bounds.assign(static_cast<size_t>(ranks) + 1, bucket.begin);
  each_part(bucket, [&](const Part& part) {
    for (auto rank = static_cast<size_t>(part.owner) + 1; rank < bucket.bounds.size(); ++rank)
      bucket.bounds[rank] += part.room;
  });
}

void GradientBuckets::place(GradientBucket& bucket, int rank) {
  bucket.sum = owned_;
  owned_ += bucket.part(rank);
  largest_ = std::max(largest_, bucket.size());
  if (!owners_) return;
  each_part(bucket, [&](const Part& part) {
    if (part.owner == rank && sums_[part.slot] < 0)
      sums_[part.slot] =
          bucket.sum + bucket.begin + part.target - bucket.bounds[static_cast<size_t>(rank)];
  });
}

void GradientBuckets::each_part(const GradientBucket& bucket,
                                const std::function<void(const Part&)>& use) const {
  for (const size_t slot : bucket.slots) {
    const int64_t size = sizes_[slot], before = bucket.begin - begins_[slot];
    const int64_t first = std::max<int64_t>(before, 0),
                  last = std::min(bucket.end - begins_[slot], room_of(size));
    const auto give = [&](int64_t begin, int64_t end, int owner) {
      if (begin < end)
        use({slot, begin, begin - before, std::min(end, size) - begin, end - begin, owner});
    };
    if (!owners_) give(first, last, 0);
    for (int rank = owners_ ? owners_->owner(slot) : 0; owners_ && rank < owners_->ranks();
         ++rank) {
      const ElementRange part = owners_->part(slot, rank);
      if (part.size == 0) continue;
      give(std::max(first, part.offset), std::min(last, part.end() < size ? part.end() : last),
           rank);
    }
  }
}

}  // namespace rw
