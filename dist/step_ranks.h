// The ranks of a training program's steps, which planners also run dry.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../planner/forecast/program.h"
#include "data_parallel.h"

namespace rw {

// The words for StepSettings::shard, from what keeps most on every rank to what keeps least: none,
// states (shard_states()), or parameters, with the states (shard_parameters()).
const std::vector<std::string>& sharding_words();

// For steps that MakeSteps builds (planner/forecast/program.h): on a device that computes, the
// ranks of this run; on one that only predicts, DryRanks in their place, so that a planner can be
// any rank of any number.
//
//   StepRanks ranks(settings);  // before the optimizer, which it must outlive
//   Accumulate optimizer(SGD(ranks.shard(std::move(groups)), options), settings.accumulate);
//   std::unique_ptr<DataParallel> parallel = ranks.share(optimizer);  // after it
class StepRanks {
 public:
  // `real` must outlive it. ValueError for settings of another rank than that one, and for a word
  // that is not one of sharding_words().
  explicit StepRanks(const StepSettings& settings, Communicator& real = world());

  // The groups, sharded as the settings say.
  std::vector<ParameterGroup> shard(std::vector<ParameterGroup> groups) const;
  std::vector<ParameterGroup> shard(std::vector<Tensor> parameters) const;
  // Joins the updates of the ranks while it lives; null if there is one rank. ValueError for
  // optimizers that are not an Accumulate.
  std::unique_ptr<DataParallel> share(Optimizer& optimizer,
                                      const DataParallelOptions& options = {}) const;

 private:
  std::unique_ptr<Communicator> dry_;  // null: the real ones are taken
  Communicator* ranks_;
  std::string shard_;
};

}  // namespace rw
