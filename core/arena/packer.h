// Packs lifetimes that meet into a line of addresses. Private to core/arena/layout.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "address_line.h"
#include "lifetime.h"

namespace rw {

// Lifetimes that follow each other without a moment when nothing is alive. Their times are numbers
// of maximal cliques (the moments after which something ends): two items share a moment exactly
// when they share a clique.
struct Component {
  std::vector<Lifetime> items;  // by begin
  std::vector<uint32_t> ids;    // of the items, in the caller's order
  uint32_t cliques = 0;
  uint64_t lower = 0;  // lower bound
};

struct Packing {
  std::vector<uint64_t> addresses;
  uint64_t reach = UINT64_MAX;  // end of the highest item
};

// Sizes and addresses of a component, and of its line, stay below this.
constexpr uint64_t most_units = uint64_t{1} << 30;

// Packs one component. Packings that reach no higher than `target` are good enough. `work` counts
// down over all components.
Packing pack(const Component& component, const AddressLine& line, uint64_t target, uint64_t& work);

}  // namespace rw
