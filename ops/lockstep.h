// Runs parts of one batch side by side on one device, so that they can wait for each other.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ops.h"

namespace rw {

// Runs the same function for several parts of a batch, each on a thread with a tape of its own, but
// one at a time and in a fixed order: a part runs until it ends or needs values of the others, then
// the next one does. So results have the same bits every time, and batch_norm sees the whole batch
// while only one part at a time computes between two of them.
//
// With HostBoundaries on, a part's activations wait in host memory while it waits for the others,
// so device memory holds the activations of one part, however many there are.
//
// Parts begin in the caller's state (device, Autocast, NoGrad, segments of blocks), with an empty
// tape and without observers of it: AutoRecompute and PlanFollower do not reach into them.
class Lockstep {
 public:
  // ValueError for no parts.
  explicit Lockstep(uint32_t parts);
  ~Lockstep();
  Lockstep(const Lockstep&) = delete;
  Lockstep& operator=(const Lockstep&) = delete;

  uint32_t parts() const { return count_; }  // the number of parts
  // Calls body(part) for every part. If a part throws, the others are unwound and the first
  // exception is thrown here. AutogradError inside another Lockstep, and if parts do not meet
  // alike.
  void run(const std::function<void(uint32_t part)>& body);

 private:
  class Exchange;
  struct Part;

  void live(uint32_t part, const std::function<void(uint32_t)>& body);
  void wait_for_turn(uint32_t part);
  void pass_on(uint32_t part);
  // Waits until all parts have made this call equally often, with the same name.
  void meet(const char* what);

  const uint32_t count_;
  std::vector<Part> parts_;
  std::shared_ptr<Exchange> exchange_;
  std::mutex mutex_;
  std::condition_variable turned_;
  uint32_t turn_ = 0;   // the part that is running
  bool parks_ = false;  // values that a part holds wait in host memory, too
  uint64_t age_ = 0;    // of the storages that existed before the parts began
  std::exception_ptr failure_;
};

}  // namespace rw
