// Sums and differences of work by phase.
#pragma once

#include <cstddef>

#include "../../core/memory/work.h"

namespace rw {

inline WorkByPhase work_since(WorkByPhase after, const WorkByPhase& before) {
  for (size_t i = 0; i < after.size(); ++i) {
    after[i].flops -= before[i].flops;
    after[i].bytes -= before[i].bytes;
    after[i].over_bus -= before[i].over_bus;
    after[i].calls -= before[i].calls;
    after[i].offloaded -= before[i].offloaded;
    after[i].on_host -= before[i].on_host;
  }
  return after;
}

// Counts wrap, so that a negative difference may be added, too.
inline WorkByPhase with_work(WorkByPhase sum, const WorkByPhase& more) {
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i].flops += more[i].flops;
    sum[i].bytes += more[i].bytes;
    sum[i].over_bus += more[i].over_bus;
    sum[i].calls += more[i].calls;
    sum[i].offloaded += more[i].offloaded;
    sum[i].on_host += more[i].on_host;
  }
  return sum;
}

}  // namespace rw
