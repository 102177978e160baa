// Brings offloaded states to the device for an update, run by run, and back.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "parameters.h"

namespace rw {

// The staging for one update. Between two runs, the copy of the next run to the device, the update
// of this run and the copy of the last run back are queued. They touch different bytes, so that a
// device runs them side by side, and three runs are on it at once. 16-bit parameters are rounded
// from their masters on the device, so that FlatParameters::publish() need not read these over the
// bus.
class StateStaging {
 public:
  // Queues the kernels of a run, which change what they are given: copies on the device where the
  // run is staged, else views of the slab.
  using Update = std::function<void(size_t run, RunValues values)>;

  explicit StateStaging(FlatParameters& parameters) : parameters_(parameters) {}
  void update(const Update& update_run);  // all runs that are updated here

 private:
  const FlatParameters::Slab& slab_of(size_t run) const;
  RunValues begin(size_t run);
  void end(size_t run);
  void fetch(size_t run);
  void put_back(size_t run, const RunValues& values) const;

  FlatParameters& parameters_;
  std::deque<std::pair<size_t, RunValues>> staged_;  // by run: updated, being updated, next
};

}  // namespace rw
