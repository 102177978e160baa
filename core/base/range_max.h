// A segment tree. Private to core/arena/packer.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace rw {

// The maximum over a range of numbers, and a change of a range by `Combine`: a segment tree whose
// nodes record changes of all their leaves.
template <class Combine>
class RangeMax {
 public:
  explicit RangeMax(uint32_t n) : n_(n), max_(2 * std::bit_ceil(n)), all_(max_.size()) {}

  void change(uint32_t begin, uint32_t end, int64_t by) { change(1, 0, n_, begin, end, by); }
  int64_t max(uint32_t begin, uint32_t end) const { return max(1, 0, n_, begin, end); }

 private:
  void change(uint32_t node, uint32_t lo, uint32_t hi, uint32_t begin, uint32_t end, int64_t by) {
    if (begin <= lo && hi <= end) {
      max_[node] = Combine()(max_[node], by);
      all_[node] = Combine()(all_[node], by);
      return;
    }
    const uint32_t mid = (lo + hi) / 2;
    if (begin < mid) change(2 * node, lo, mid, begin, end, by);
    if (end > mid) change(2 * node + 1, mid, hi, begin, end, by);
    max_[node] = Combine()(std::max(max_[2 * node], max_[2 * node + 1]), all_[node]);
  }
  int64_t max(uint32_t node, uint32_t lo, uint32_t hi, uint32_t begin, uint32_t end) const {
    if (begin <= lo && hi <= end) return max_[node];
    const uint32_t mid = (lo + hi) / 2;
    int64_t result = INT64_MIN / 2;
    if (begin < mid) result = max(2 * node, lo, mid, begin, end);
    if (end > mid) result = std::max(result, max(2 * node + 1, mid, hi, begin, end));
    return Combine()(result, all_[node]);
  }

  uint32_t n_;
  std::vector<int64_t> max_, all_;
};

}  // namespace rw
