// Plans that recompute cheap values.
#pragma once

#include <functional>

#include "../graph/graph.h"
#include "../graph/plan.h"

namespace rw {

// Returns a plan that keeps the outputs of heavy records (matmul, convolution) and replays
// everything between them, in segments small enough that a replay brings back little at a time,
// where that drops more bytes than it must hold.
Plan plan_speed(const Graph& graph, const std::function<bool(uint32_t record)>& is_heavy);

}  // namespace rw
