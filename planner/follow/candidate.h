// A plan that was measured.
#pragma once

#include "../forecast.h"
#include "../graph/plan.h"

namespace rw {

// A plan, and the result of a dry run of the program under it.
struct Candidate {
  Plan plan;
  Forecast forecast;  // not packed: the peak is exact, reserved bytes are not
  double cost = 0;    // of its replays, by the search's objective

  uint64_t peak() const { return forecast.memory.peak; }        // most bytes live at once
  OpCost replay() const { return replay_cost(forecast.work); }  // what recomputation costs
};

}  // namespace rw
