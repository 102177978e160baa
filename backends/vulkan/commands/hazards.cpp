#include "backends/vulkan/commands/hazards.h"

#include <algorithm>

namespace rw::vulkan {

namespace {

// The first range of the block that ends after `begin`: only it can be the first overlap.
template <class Ranges>
auto first_ending_after(Ranges& ranges, uint32_t block, uint64_t begin) {
  return std::partition_point(ranges.begin(), ranges.end(), [&](const auto& r) {
    return r.block < block || (r.block == block && r.end <= begin);
  });
}

}  // namespace

Use use_of(const Binding& b) {
  const uint64_t words = (b.range.size + 15) / 16;
  return {b.range.block, b.range.offset, b.range.offset + 16 * words, b.access != Access::read};
}

bool HazardTracker::overlaps(const Ranges& ranges, const Use& use) {
  auto it = first_ending_after(ranges, use.block, use.begin);
  return it != ranges.end() && it->block == use.block && it->begin < use.end;
}

void HazardTracker::insert(Ranges& ranges, const Use& use) {
  auto first = first_ending_after(ranges, use.block, use.begin);
  auto last = first;
  Use merged = use;
  for (; last != ranges.end() && last->block == use.block && last->begin < use.end; ++last) {
    merged.begin = std::min(merged.begin, last->begin);
    merged.end = std::max(merged.end, last->end);
  }
  if (first == last) {
    ranges.insert(first, merged);
  } else {
    *first = merged;
    ranges.erase(first + 1, last);
  }
}

bool HazardTracker::conflicts(std::span<const Use> step) const {
  return std::any_of(step.begin(), step.end(), [&](const Use& use) {
    if (use.begin == use.end) return false;
    return overlaps(writes_, use) || (use.writes && overlaps(reads_, use));
  });
}

void HazardTracker::add(std::span<const Use> step) {
  for (const Use& use : step)
    if (use.begin < use.end) insert(use.writes ? writes_ : reads_, use);
}

void HazardTracker::clear() {
  reads_.clear();
  writes_.clear();
}

bool HazardModel::conflicts(std::span<const Use> step) const {
  for (const Use& now : step)
    for (const Use& before : uses_)
      if (now.block == before.block && (now.writes || before.writes) &&
          std::max(now.begin, before.begin) < std::min(now.end, before.end))
        return true;
  return false;
}

}  // namespace rw::vulkan
