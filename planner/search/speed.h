// Plans that recompute what is cheap.
#pragma once

#include <functional>

#include "../graph/graph.h"
#include "../graph/plan.h"

namespace rw {

// Keeps the outputs of heavy records (matmul, convolution) and replays everything between them, in
// segments small enough that a replay brings back little at a time, if that drops more bytes than
// it must hold.
Plan plan_speed(const Graph& graph, const std::function<bool(uint32_t record)>& is_heavy);

}  // namespace rw
