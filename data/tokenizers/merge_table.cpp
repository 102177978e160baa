#include "data/tokenizers/merge_table.h"

#include <bit>

namespace rw {

MergeTable::MergeTable(size_t count) : slots_(std::bit_ceil(2 * count + 1), none) {
  merges_.reserve(count);
}

size_t MergeTable::slot(int32_t left, int32_t right) const {
  const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  const size_t mask = slots_.size() - 1;
  size_t at = (pair * 0x9E3779B97F4A7C15 >> 32) & mask;
  for (; slots_[at] != none; at = (at + 1) & mask) {
    const Merge& merge = merges_[slots_[at]];
    if (merge.left == left && merge.right == right) break;
  }
  return at;
}

bool MergeTable::add(Merge merge) {
  uint32_t& rank = slots_[slot(merge.left, merge.right)];
  if (rank != none) return false;
  rank = static_cast<uint32_t>(merges_.size());
  merges_.push_back(merge);
  return true;
}

uint32_t MergeTable::rank(int32_t left, int32_t right) const {
  return slots_[slot(left, right)];
}

}  // namespace rw
