// The interface between Accumulate and the processes that train the same model
// (dist/data_parallel.h).
#pragma once

#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

// Joins the windows of an Accumulate with those of its twins, one on each rank. All make the same
// calls in the same order. Their simultaneous micro-batches follow each other by rank, as in one
// process that has them all.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // One number from each rank, by rank.
  virtual std::vector<float> all(float own) = 0;
  // Begins a window, without sums.
  virtual void begin() = 0;
  // Surround the backward pass of a micro-batch. In between, the exchange may take gradients, which
  // are then undefined, and after the pass it has all of them. If several optimizers share the
  // pass, it does not begin for any of them.
  virtual void begin_pass() = 0;
  virtual void end_pass() = 0;
  // By rank, whether one of the gradients of the pass was not finite: 0 or 1.
  virtual std::vector<float> overflows() = 0;
  // Adds the gradients of the pass to the sums, in rank order, for the ranks that count.
  virtual void add(const std::vector<bool>& counts) = 0;
  // Makes the sums grad() of the parameters that any micro-batch of the window reached; with a
  // Shard, of those whose state is kept here.
  virtual void finish() = 0;
  // With a Shard: joins sums of squares and overflow flags of all ranks; and after an update sends
  // the values of all parameters, each from its owner.
  virtual void share_stats(const Tensor& stats) = 0;
  virtual void share_parameters() = 0;
};

}  // namespace rw
