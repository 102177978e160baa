// Runs a recorded forward pass again, with its backward, on a dry device, to find the memory that
// it would need with other segments. This is exact for everything on the tape: ops run with the
// sizes that they had, values die when they died, and values that are alive now stay.
#pragma once

#include <optional>
#include <vector>

#include "../dry_run.h"
#include "follower.h"

namespace rw {

class TapeRerun {
 public:
  // `loss` is as in segment_reports(). `ignores_segments`: only run() without segments is asked
  // for. `holds_gradient`: whoever starts backward holds the gradient of the loss meanwhile, as
  // optimizers do.
  TapeRerun(const Tape& tape, const Tensor& loss, bool ignores_segments = false,
            bool holds_gradient = false);

  // Tells whether a rerun is possible: the device can be predicted, there is something to start
  // backward from, and all segments are closed and, where they are kept, set by marks or a plan.
  bool is_possible() const { return possible_; }
  // Runs with the tape's segments except those that are left out, by number. Empty if the device
  // does not have enough memory.
  std::optional<Forecast> run(const std::vector<bool>& left_out) const;
  // Runs on the default device, which is dry, without the tape's segments: a program for Search.
  void run() const;
  // Returns the bytes of the values from outside the tape that it makes: leaves, their gradients,
  // inputs. With `newest`, only those in this storage or older ones count.
  uint64_t outside_bytes(uint64_t newest = UINT64_MAX) const;

 private:
  class Pass;

  const Tape& tape_;
  int64_t root_ = -1;  // the record that backward starts from
  int slot_ = 0;
  bool possible_ = false, holds_gradient_;
};

}  // namespace rw
