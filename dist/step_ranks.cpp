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

StepRanks::StepRanks(const StepSettings& settings, Communicator& real)
    : ranks_(&real), shard_(settings.shard) {
  const auto& words = sharding_words();
  check(std::ranges::find(words, settings.shard) != words.end(), "ranks",
        "the choice of what ranks keep in parts must be {}, got '{}'", fmt::join(words, " or "),
        settings.shard);
  if (default_device()->backend().is_dry()) {
    dry_ = std::make_unique<DryRanks>(settings.rank, settings.ranks);
    ranks_ = dry_.get();
  }
  check(ranks_->rank() == settings.rank && ranks_->size() == settings.ranks, "ranks",
        "the settings must be of this rank, {} of {}, got {} of {}", real.rank(), real.size(),
        settings.rank, settings.ranks);
}

std::vector<ParameterGroup> StepRanks::shard(std::vector<ParameterGroup> groups) const {
  const Shard own{ranks_->rank(), ranks_->size()};
  if (shard_ == "states") return shard_states(std::move(groups), own);
  if (shard_ == "parameters") return shard_parameters(std::move(groups), own);
  return groups;
}

std::vector<ParameterGroup> StepRanks::shard(std::vector<Tensor> parameters) const {
  return shard(one_group(std::move(parameters)));
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
