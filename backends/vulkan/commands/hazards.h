// Decides where barriers go. Knows byte ranges of blocks, nothing of Vulkan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

// Bytes [begin, end) of a block as one step uses them.
struct Use {
  uint32_t block;
  uint64_t begin, end;
  bool writes;  // writes, or reads and writes; else only reads
};

// What a kernel uses by a binding, in whole words of 16 bytes.
Use use_of(const Binding& binding);
// What a copy uses: no more than the range.
inline Use use_of(const BufferRange& range, bool writes) {
  return {range.block, range.offset, range.offset + range.size, writes};
}

// What was read and written since the last barrier, as sorted lists of disjoint ranges.
class HazardTracker {
 public:
  // Whether a step with these uses must wait for a step added before (read after write, write after
  // read, write after write).
  bool conflicts(std::span<const Use> step) const;
  void add(std::span<const Use> step);
  void clear();  // a barrier was recorded

 private:
  struct Range {
    uint32_t block;
    uint64_t begin, end;
  };
  using Ranges = std::vector<Range>;
  static bool overlaps(const Ranges& ranges, const Use& use);
  static void insert(Ranges& ranges, const Use& use);

  Ranges reads_, writes_;
};

// The same question answered by looking at every pair: what the tracker is checked against, in
// tests and with REWIND_CHECK_HAZARDS=1.
class HazardModel {
 public:
  bool conflicts(std::span<const Use> step) const;
  void add(std::span<const Use> step) { uses_.insert(uses_.end(), step.begin(), step.end()); }
  void clear() { uses_.clear(); }

 private:
  std::vector<Use> uses_;
};

}  // namespace rw::vulkan
