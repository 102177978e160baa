// The choice of the places where a recorded chain is cut into stages.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.h"
#include "uses.h"

namespace rw {

// Returns at most `limit` stages as positions first = p[0] < ... < p[n] = last, where few bytes
// cross and the stages between have about equal sizes. Chains are cut at articulation points,
// U-Nets where the fewest skips cross, and anything else wherever it is cheapest.
std::vector<uint32_t> cut_into_stages(const Graph& graph, const std::vector<ValueUse>& uses,
                                      uint32_t first, uint32_t last, uint32_t limit);

}  // namespace rw
