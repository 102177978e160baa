// The seam between Accumulate and the processes that train the same model (dist/data_parallel.h).
#pragma once

#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

// Joins the windows of an Accumulate with those of its twins, one on each rank. All make the same
// calls in the same order. The micro-batches that they have at a time follow each other by rank, as
// in one process that has them all.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // A number of each rank, by rank.
  virtual std::vector<float> all(float own) = 0;
  // A window begins: there are no sums.
  virtual void begin() = 0;
  // The backward pass of a micro-batch begins, and is over. In between the exchange may take
  // gradients, which are undefined then, and after it it has all that there were. Where several
  // optimizers share the pass it begins for none of them.
  virtual void begin_pass() = 0;
  virtual void end_pass() = 0;
  // By rank, whether one of the gradients of the pass was not finite: 0 or 1.
  virtual std::vector<float> overflows() = 0;
  // Adds the gradients that the pass brought to the ranks to the sums, in rank order, those of
  // ranks that count.
  virtual void add(const std::vector<bool>& counts) = 0;
  // The sums become grad() of the parameters that any micro-batch of the window reached; with a
  // Shard, of those whose state is kept here.
  virtual void finish() = 0;
  // With a Shard: sums of squares and overflow flags of all ranks from those of this one; and after
  // an update the values of all parameters, each from its owner.
  virtual void share_stats(const Tensor& stats) = 0;
  virtual void share_parameters() = 0;
};

}  // namespace rw
