// A count of the work of planning, which bounds it so that a graph gets the same plan in every run,
// however fast the machine is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace rw {

// Work in steps that take about a nanosecond each.
struct PlanWork {
  uint64_t limit = UINT64_MAX;  // beyond it, planning gets along with less
  uint64_t done = 0;            // the work so far
  bool is_cut = false;          // something was left out for lack of work
  // If set, is called whenever more work is done.
  std::function<void(const PlanWork&)> on_progress = {};

  // Counts more work.
  void count(uint64_t more) {
    done += more;
    if (on_progress) on_progress(*this);
  }
  // Tells whether this much more is within the limit. If not, something is left out.
  bool allows(uint64_t more) {
    const bool fits = done + more <= limit;
    is_cut |= !fits;
    return fits;
  }
};

}  // namespace rw
