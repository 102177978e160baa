// The last step of planning: it uses the room that a plan leaves.
#pragma once

#include "../graph/graph.h"
#include "../graph/plan.h"
#include "../graph/plan_work.h"

namespace rw {

// Hill climbing by evaluate(), since the dynamic programme rounds bytes and knows few sets of kept
// values: it drops segments and keeps more values as long as that is cheaper and the peak is at
// most `bytes`, as that of `plan` must be. `work` counts; null: nothing does.
Plan polish(const Graph& graph, uint64_t bytes, Plan plan, PlanWork* work = nullptr);

}  // namespace rw
