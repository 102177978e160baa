#include "rewind/dist/gradient_buckets.h"

#include <algorithm>

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

GradientBuckets::GradientBuckets(const std::vector<FlatParameters::Slot>& slots,
                                 const std::vector<size_t>& order, bool has_owners, int rank,
                                 int ranks, int64_t elements)
    : begins_(slots.size()), sums_(slots.size()) {
  for (const FlatParameters::Slot& slot : slots) sizes_.push_back(slot.parameter.numel());
  cut(order, std::max<int64_t>(elements / unit, 1) * unit);
  for (GradientBucket& bucket : buckets_) {
    if (has_owners)
      sort_by_owner(bucket, slots, ranks);
    else
      for (int64_t r = 0; r <= ranks; ++r)
        bucket.bounds.push_back(bucket.begin + bucket.size() / unit * r / ranks * unit);
    place(bucket, rank);
  }
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

void GradientBuckets::sort_by_owner(GradientBucket& bucket,
                                    const std::vector<FlatParameters::Slot>& slots,
                                    int ranks) const {
  const auto owner = [&](size_t slot) { return slots[slot].owner; };
  std::ranges::stable_sort(bucket.slots, {}, owner);
  int64_t at = bucket.begin;
  size_t next = 0;
  for (int rank = 0; rank <= ranks; ++rank) {
    for (; next < bucket.slots.size() && owner(bucket.slots[next]) < rank; ++next)
      at = std::min(at + room_of(sizes_[bucket.slots[next]]), bucket.end);
    bucket.bounds.push_back(at);
  }
}

// A bucket of whole gradients has them in its order now; one with a part of a gradient begins where
// that is cut.
void GradientBuckets::place(GradientBucket& bucket, int rank) {
  bucket.sum = owned_;
  owned_ += bucket.part(rank);
  largest_ = std::max(largest_, bucket.size());
  const bool is_whole = bucket.slots.size() > 1;
  int64_t at = bucket.begin;
  for (const size_t slot : bucket.slots) {
    if (is_whole) begins_[slot] = at;
    if (begins_[slot] >= bucket.begin)
      sums_[slot] = bucket.sum + begins_[slot] - bucket.bounds[static_cast<size_t>(rank)];
    at += room_of(sizes_[slot]);
  }
}

void GradientBuckets::each_part(const GradientBucket& bucket,
                                const std::function<void(const Part&)>& use) const {
  for (const size_t slot : bucket.slots) {
    const int64_t begin = std::max(begins_[slot], bucket.begin);
    const int64_t end = std::min(begins_[slot] + sizes_[slot], bucket.end);
    const int64_t room = std::min(begins_[slot] + room_of(sizes_[slot]), bucket.end) - begin;
    use({slot, begin - begins_[slot], begin - bucket.begin, end - begin, room});
  }
}

}  // namespace rw
