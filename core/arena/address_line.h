// The spaces of a layout, one after the other. Private to core/arena/layout.cpp and
// packer.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "../base/error.h"

namespace rw {

inline constexpr uint64_t max_total = uint64_t{1} << 61;  // keeps sums of sizes far from overflow

// All spaces on one line of addresses: the holes, small ones first so that big ones stay whole,
// then the regions. No range may cross the border between two spaces.
class AddressLine {
 public:
  AddressLine(std::span<const uint64_t> holes, uint64_t max_region, uint64_t total)
      : order_(holes.size()), region_(std::min(max_region, total)), limited_(max_region < total) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::ranges::stable_sort(order_, {}, [&](uint32_t i) { return holes[i]; });
    for (const uint32_t hole : order_) {
      sizes_.push_back(std::min(holes[hole], total));
      ends_.push_back(holes_end() + sizes_.back());
    }
  }

  bool has_borders() const { return !ends_.empty() || limited_; }
  uint64_t holes_end() const { return ends_.empty() ? 0 : ends_.back(); }
  uint64_t region() const { return region_; }  // bytes of each

  // Calls body(address, bytes) for each space, in the order of addresses.
  template <class F>
  void for_each_hole(F&& body) const {
    for (size_t i = 0; i < sizes_.size(); ++i) body(ends_[i] - sizes_[i], sizes_[i]);
  }

  // Returns the lowest address from `from` on at which `size` bytes lie in one space.
  uint64_t lowest(uint64_t from, uint64_t size) const {
    if (from < holes_end()) {
      const size_t hole = space(from);
      if (size <= ends_[hole] - from) return from;
      const auto next = std::lower_bound(sizes_.begin() + hole + 1, sizes_.end(), size);
      if (next != sizes_.end()) return ends_[next - sizes_.begin()] - *next;
      from = holes_end();
    }
    const uint64_t offset = from - holes_end();
    if (offset + size <= region_) return from;
    const uint64_t used = offset % region_;
    return used + size <= region_ ? from : from + region_ - used;
  }

  // Returns the bytes from an address to the end of its space.
  uint64_t room(uint64_t from) const {
    return from < holes_end() ? ends_[space(from)] - from
                              : region_ - (from - holes_end()) % region_;
  }

  // Returns the space of an address (i < holes: hole i, holes + i: new region i), and the bytes
  // from its beginning.
  std::pair<uint32_t, uint64_t> place(uint64_t address) const {
    if (address < holes_end()) {
      const size_t hole = space(address);
      return {order_[hole], address - (ends_[hole] - sizes_[hole])};
    }
    const uint64_t offset = address - holes_end();
    return {static_cast<uint32_t>(order_.size() + offset / region_), offset % region_};
  }

 private:
  size_t space(uint64_t address) const {
    return std::upper_bound(ends_.begin(), ends_.end(), address) - ends_.begin();
  }

  std::vector<uint32_t> order_;         // hole numbers in the order of addresses
  std::vector<uint64_t> sizes_, ends_;  // of the holes
  uint64_t region_;
  bool limited_;
};

}  // namespace rw
