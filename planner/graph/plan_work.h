// The work of planning, counted, so that it can be bounded and a graph gets the same plan in every
// run, however fast the machine is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace rw {

// Counted in steps that take about a nanosecond each.
struct PlanWork {
  uint64_t limit = UINT64_MAX;  // beyond it planning makes do with less
  uint64_t done = 0;            // so far
  uint64_t programme = 0;  // of the largest dynamic programme so far: the next may take as much
  bool is_cut = false;     // something was left out for want of work
  // Called whenever more work is done, if set.
  std::function<void(const PlanWork&)> on_progress = {};

  // Counts more work.
  void count(uint64_t more) {
    done += more;
    if (on_progress) on_progress(*this);
  }
  // Whether this much more is within the limit; if not, something is left out.
  bool allows(uint64_t more) {
    const bool fits = done + more <= limit;
    is_cut |= !fits;
    return fits;
  }
};

}  // namespace rw
