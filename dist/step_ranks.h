// The optimizer and the ranks of a training program's steps, which planners also run dry.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../optim/accumulation/fused_backward.h"
#include "../planner/forecast/program.h"
#include "data_parallel.h"

namespace rw {

// The words for StepSettings::shard, from what keeps most on every rank to what keeps least: none,
// states (shard_states()), or parameters, with the states (shard_parameters()).
const std::vector<std::string>& sharding_words();
// The words for StepSettings::offload, likewise: none, states (offload_states()), or parameters,
// with the states (offload_parameters()), either with +updates, which the host makes then
// (Offload::updates_on_host); or file: frozen weights stay in their file, of programs
// that have such (TrainingProgram::frozen_file), and what is trained is on the device.
const std::vector<std::string>& offloading_words();

// For steps that MakeSteps builds (planner/forecast/program.h): on a device that computes, the
// ranks of this run; on one that only predicts, DryRanks in their place, so that a planner can be
// any rank of any number.
//
//   StepRanks ranks(settings);  // before the optimizer, which it must outlive
//   auto optimizer = ranks.wrap(SGD(ranks.placed(std::move(groups)), options));
//   std::unique_ptr<DataParallel> parallel = ranks.share(*optimizer);  // after it
class StepRanks {
 public:
  // `real` must outlive it. ValueError for settings of another rank than that one, and for a word
  // that is not one of sharding_words() or offloading_words().
  explicit StepRanks(const StepSettings& settings, Communicator& real = world());

  // The groups, sharded and offloaded as the settings say.
  std::vector<ParameterGroup> placed(std::vector<ParameterGroup> groups) const;
  std::vector<ParameterGroup> placed(std::vector<Tensor> parameters) const;
  // Whether the settings ask for an optimizer with its moments in 8 bits.
  bool has_states_in_8_bits() const { return settings_.states_in_8_bits; }
  // The optimizer, an Accumulate or FusedBackward as the settings say. ValueError for fused updates
  // of several steps.
  template <class O>
  std::unique_ptr<Optimizer> wrap(O&& optimizer) const {
    check_updates();
    if (!settings_.fused_update)
      return std::make_unique<Accumulate>(std::forward<O>(optimizer), settings_.accumulate);
    return std::make_unique<FusedBackward>(std::forward<O>(optimizer), settings_.fused_update == 1
                                                                           ? FusedPasses::one
                                                                           : FusedPasses::two);
  }
  // Joins the updates of the ranks while it lives; null if there is one rank. ValueError for
  // optimizers that are not an Accumulate.
  std::unique_ptr<DataParallel> share(Optimizer& optimizer,
                                      const DataParallelOptions& options = {}) const;

 private:
  void check_updates() const;

  std::unique_ptr<Communicator> dry_;  // null: the real ones are taken
  Communicator* ranks_;
  StepSettings settings_;
};

}  // namespace rw
