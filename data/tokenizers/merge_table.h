// The pairs of tokens that a byte-pair encoding merges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rw {

// A merge of two tokens to a third one.
struct Merge {
  int32_t left, right, merged;
};

// The merges of a tokenizer by their rank, and the rank of a pair. A table of its own, because the
// look-ups of pairs are most of the work of encoding.
class MergeTable {
 public:
  static constexpr uint32_t none = UINT32_MAX;  // the rank of a pair that no merge has

  // A table for up to `count` merges.
  explicit MergeTable(size_t count);

  // Adds the merge of the next rank. False if there is one of this pair already.
  bool add(Merge merge);
  // The rank of a pair, or none.
  uint32_t rank(int32_t left, int32_t right) const;
  const Merge& merge(uint32_t rank) const { return merges_[rank]; }

 private:
  size_t slot(int32_t left, int32_t right) const;  // of the pair, or where it would be

  std::vector<Merge> merges_;
  std::vector<uint32_t> slots_;  // ranks; a power of two, at most half of them taken
};

}  // namespace rw
