// Offloaded states come to the device for an update, run by run, and go back.
#pragma once

#include <deque>
#include <vector>

#include "parameters.h"

namespace rw {

// For one update: begin(0), the kernels of run 0, end(0), begin(1), ..., finish(). What is queued
// between two ends is the copy of the next run to the device, the update of this one and the copy
// of the last one back. They touch different bytes, so that a device runs them side by side, and
// three runs are on it at once.
class StateStaging {
 public:
  // `publishes`: 16-bit parameters are rounded from what their masters are now, so that
  // FlatParameters::publish() need not read these over the bus.
  StateStaging(const FlatParameters& parameters, bool publishes)
      : parameters_(parameters), publishes_(publishes) {}

  // Those of run number `run`: copies on the device where it is staged, else views of the slab.
  RunValues begin(size_t run);
  void end(size_t run);  // its kernels are queued
  void finish();         // all are: what is on the device goes back

 private:
  struct Staged {
    size_t run = 0;
    RunValues values;
  };

  const FlatParameters::Slab& slab_of(size_t run) const;
  void fetch(size_t run);
  void put_back(const Staged& staged) const;
  void publish(size_t run, const Tensor& masters) const;

  const FlatParameters& parameters_;
  const bool publishes_;
  std::deque<Staged> staged_;  // in order: updated, being updated, next
};

}  // namespace rw
