// How the records of a graph use its values.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.h"

namespace rw {

// The planner's knowledge of each value besides its bytes.
struct ValueUse {
  uint32_t rank = UINT32_MAX;  // in the order in which records make them; external: none
  int32_t last_reader = -1;
  bool saved = false;         // by a vjp that runs
  bool has_gradient = false;  // its record's vjp runs
  bool is_heavy = false;      // among the dearest per byte to make again
};

std::vector<ValueUse> value_uses(const Graph& graph);

// Names the offload of a value that is not external, as soon as the forward pass can do without it.
Plan::Offload offload_of(const Graph& graph, const std::vector<ValueUse>& uses, uint32_t value,
                         bool in_8_bits);
// Brings offloads into the order in which they happen, each once.
void put_in_order(std::vector<Plan::Offload>& offloads);

}  // namespace rw
