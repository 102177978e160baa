// Decides where barriers go. It knows byte ranges of blocks and nothing of Vulkan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

// The bytes [begin, end) of a block that one step uses.
struct Use {
  uint32_t block;
  uint64_t begin, end;
  bool writes;  // writes, or reads and writes; else only reads
};

// The bytes that a kernel uses through a binding, in whole words of 16 bytes.
Use use_of(const Binding& binding);
// The bytes that a copy uses: exactly the range.
inline Use use_of(const BufferRange& range, bool writes) {
  return {range.block, range.offset, range.offset + range.size, writes};
}

// The bytes that were read and written since the last barrier, as sorted lists of disjoint ranges.
class HazardTracker {
 public:
  // Tells whether a step with these uses must wait for a step added before (read after write, write
  // after read, write after write).
  bool conflicts(std::span<const Use> step) const;
  void add(std::span<const Use> step);
  void clear();  // a barrier was recorded

 private:
  using Ranges = std::vector<Use>;  // sorted and disjoint
  static bool overlaps(const Ranges& ranges, const Use& use);
  static void insert(Ranges& ranges, const Use& use);

  Ranges reads_, writes_;
};

// Answers the same question by looking at every pair. The tracker is checked against it, in tests
// and with REWIND_CHECK_HAZARDS=1.
class HazardModel {
 public:
  bool conflicts(std::span<const Use> step) const;
  void add(std::span<const Use> step) { uses_.insert(uses_.end(), step.begin(), step.end()); }
  void clear() { uses_.clear(); }

 private:
  std::vector<Use> uses_;
};

}  // namespace rw::vulkan
