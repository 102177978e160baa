// A recompute plan that was measured.
#pragma once

#include "../forecast.h"
#include "../graph/plan.h"

namespace rw {

// A plan, and the result of a dry run of the program under it.
struct Candidate {
  Plan plan;
  Forecast forecast;  // unpacked: the peak is exact, reserved bytes are not
  double cost = 0;    // of its replays, by the search's objective

  // The most bytes that are live at once.
  uint64_t peak() const { return forecast.memory.peak; }
  OpCost replay() const { return replay_cost(forecast.work); }  // the cost of recomputation
};

}  // namespace rw
