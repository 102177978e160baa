// The last step of planning, which uses the room that a plan leaves.
#pragma once

#include "../graph/graph.h"
#include "../graph/plan.h"
#include "../graph/plan_work.h"

namespace rw {

// Improves a plan by hill climbing with evaluate(), since the dynamic programme rounds bytes and
// knows few sets of kept values: it drops segments, keeps more values, on the host, too, and brings
// values from there to the device as long as that is cheaper and the peak stays at most `bytes`.
// The peak of `plan` must be at most `bytes`. `work` counts the work, unless it is null.
Plan polish(const Graph& graph, uint64_t bytes, Plan plan, PlanWork* work = nullptr);

}  // namespace rw
