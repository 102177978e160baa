// The batch norms of ranks.
#pragma once

#include <memory>
#include <vector>

#include "../ops/ops.h"
#include "world/communicator.h"

namespace rw {

// Makes batch norms normalise over the rows of all ranks, as Lockstep's do over those of its parts,
// to the bit. Every rank keeps running statistics of its own, which are the same.
class JointStatistics : public StatisticsExchange {
 public:
  explicit JointStatistics(Communicator& ranks) : ranks_(ranks) {}
  int64_t rows(int64_t own) override;
  BatchStatistics combine(BatchStatistics own) override;
  Tensor sum(Tensor own) override;

 private:
  Communicator& ranks_;
  std::vector<int64_t> rows_;  // by rank, of the batch norm that runs
};

// Makes batch norms normalise over the rows of their own rank. Statistics for the running
// statistics are kept until share(), which takes in those of all ranks in their order, as one
// process would that has their micro-batches one after the other.
class OwnStatistics : public StatisticsExchange {
 public:
  explicit OwnStatistics(Communicator& ranks) : ranks_(ranks) {}
  int64_t rows(int64_t own) override { return own; }
  BatchStatistics combine(BatchStatistics own) override { return own; }
  Tensor sum(Tensor own) override { return own; }
  void update(const RunningStatistics& running, const BatchStatistics& batch) override;

  // Called once per micro-batch, also on ranks that have none. RankError if ranks ran other norms.
  void share();

 private:
  Communicator& ranks_;
  std::vector<RunningStatistics> running_;  // of the batch norms, in the order in which they run
  std::vector<BatchStatistics> batches_;    // statistics of this rank to take in
};

}  // namespace rw
