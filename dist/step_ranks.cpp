#include "dist/step_ranks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/memory/default_device.h"
#include "dist/world/dry_ranks.h"

namespace rw {

const std::vector<std::string>& sharding_words() {
  static const std::vector<std::string> words = {"none", "states", "parameters"};
  return words;
}

const std::vector<std::string>& offloading_words() {
  static const std::vector<std::string> words = {
      "none", "states", "states+updates", "parameters", "parameters+updates", "file"};
  return words;
}

namespace {

void check_word(const char* what, const std::string& word, const std::vector<std::string>& words) {
  check(std::ranges::find(words, word) != words.end(), "ranks",
        "the choice of what {} must be {}, got '{}'", what, fmt::join(words, " or "), word);
}

}  // namespace

StepRanks::StepRanks(const StepSettings& settings, Communicator& real)
    : ranks_(&real), settings_(settings) {
  check_word("ranks keep in parts", settings.shard, sharding_words());
  check_word("lies in host memory", settings.offload, offloading_words());
  if (default_device()->backend().is_dry()) {
    dry_ = std::make_unique<DryRanks>(settings.rank, settings.ranks);
    ranks_ = dry_.get();
  }
  check(ranks_->rank() == settings.rank && ranks_->size() == settings.ranks, "ranks",
        "the settings must be of this rank, {} of {}, got {} of {}", real.rank(), real.size(),
        settings.rank, settings.ranks);
}

std::vector<ParameterGroup> StepRanks::placed(std::vector<ParameterGroup> groups) const {
  const Shard own{ranks_->rank(), ranks_->size()};
  if (settings_.shard == "states") groups = shard_states(std::move(groups), own);
  if (settings_.shard == "parameters") groups = shard_parameters(std::move(groups), own);
  const Offload how{.updates_on_host = settings_.updates_on_host()};
  if (settings_.offload.starts_with("states")) return offload_states(std::move(groups), how);
  if (settings_.offloads_parameters()) return offload_parameters(std::move(groups), how);
  return groups;
}

std::vector<ParameterGroup> StepRanks::placed(std::vector<Tensor> parameters) const {
  return placed(one_group(std::move(parameters)));
}

void StepRanks::check_updates() const {
  const int passes = settings_.fused_update;
  check(passes >= 0 && passes <= 2, "options",
        "updates inside backward take 1 or 2 passes, 0 means none, got {}", passes);
  check(passes == 0 || settings_.accumulate == 1, "options",
        "updates inside backward leave no gradients to add up: --accumulate must be 1, got {}",
        settings_.accumulate);
}

std::unique_ptr<DataParallel> StepRanks::share(Optimizer& optimizer,
                                               const DataParallelOptions& options) const {
  if (ranks_->size() == 1) return nullptr;
  auto* windows = dynamic_cast<Accumulate*>(&optimizer);
  check(windows, "ranks",
        "updates inside backward leave no gradients for {} ranks to add up: use Accumulate, no "
        "--fused-update",
        ranks_->size());
  return std::make_unique<DataParallel>(*windows, *ranks_, options);
}

}  // namespace rw
