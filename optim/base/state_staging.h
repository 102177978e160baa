// Brings offloaded states to the device for an update, run by run, and back; or gradients to the
// host, where it is made, and new values to the device.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "gradient_table.h"

namespace rw {

// The staging for one update. Between two runs, the copy of the next run to the device, the update
// of this run and the copy of the last run back are queued. They touch different bytes, so that a
// device runs them side by side, and three runs are on it at once. 16-bit parameters are rounded
// from their masters on the device, so that FlatParameters::publish() need not read these over the
// bus.
//
// Of runs that the host updates, gradients, and values that lie on the device, are copied to host
// memory, while the host updates the run before, and values back. What the host reads has arrived
// then, and what it writes is no longer read: copies outlive the wait for the next run's.
class StateStaging {
 public:
  // Queues the kernels of a run, which change what they are given: copies where the run is staged
  // or updated on the host (within a HostWorkScope, with a gradient table of it), else views of the
  // slab.
  using Update = std::function<void(size_t run, RunValues values)>;

  StateStaging(FlatParameters& parameters, GradientTable& gradients)
      : parameters_(parameters), gradients_(gradients) {}
  ~StateStaging();  // gradients are the device's again, if something threw
  StateStaging(const StateStaging&) = delete;
  StateStaging& operator=(const StateStaging&) = delete;

  void update(const Update& update_run);                  // all runs that are updated here
  void update_one(size_t run, const Update& update_run);  // by itself

 private:
  struct Staged {
    size_t run = 0;
    RunValues values;
    Tensor low;                       // 16-bit values on their way from the host
    std::vector<Tensor> gradients;    // the device's, in whose places are copies on the host
    std::function<void()> wait = {};  // for what the host reads
  };
  const FlatParameters::Slab& slab_of(size_t run) const;
  std::span<const FlatParameters::Slot> slots_of(size_t run) const;
  bool comes(size_t run) const;  // something of it is copied before its update
  void take(size_t run, size_t next, const Update& update_run);
  RunValues begin(size_t run, size_t next);
  void end(size_t run);
  void fetch(size_t run);
  void fetch_to_host(Staged& staged);
  void give_gradients_back(Staged& staged) const;
  void publish_from_host(Staged& staged);
  void put_back(const Staged& staged) const;

  FlatParameters& parameters_;
  GradientTable& gradients_;
  std::deque<Staged> staged_;  // by run: updated, being updated, next
};

}  // namespace rw
