#include "trainer/adamw_options.h"

#include <CLI/CLI.hpp>

#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"

namespace rw {

namespace {

template <class O>
std::unique_ptr<Optimizer> wrapped(O&& optimizer, const AdamWRecipe& recipe,
                                   uint32_t micro_batches) {
  if (!recipe.fused_update)
    return std::make_unique<Accumulate>(std::move(optimizer), micro_batches);
  check(micro_batches == 1, "options",
        "updates inside backward leave no gradients to add up: --accumulate must be 1, got {}",
        micro_batches);
  return std::make_unique<FusedBackward>(
      std::move(optimizer), recipe.fused_update == 1 ? FusedPasses::one : FusedPasses::two);
}

}  // namespace

std::unique_ptr<Optimizer> AdamWRecipe::make(const Module& model, const StepRanks& ranks,
                                             uint32_t micro_batches) const {
  std::vector<ParameterGroup> groups = ranks.shard(decay_groups(model.parameters(), weight_decay));
  if (offload_states) groups = rw::offload_states(std::move(groups));
  const AdamWOptions options{.lr = lr};
  std::unique_ptr<Optimizer> made =
      optimizer == "adamw-8bit"
          ? wrapped(AdamW8bit(std::move(groups), options), *this, micro_batches)
          : wrapped(AdamW(std::move(groups), options), *this, micro_batches);
  made->set_max_norm(1);
  return made;
}

void AdamWRecipe::add_to(CLI::App& app) {
  app.add_option("--optimizer", optimizer,
                 "the optimizer: adamw, or adamw-8bit, whose moments take 2 bytes per parameter")
      ->check(CLI::IsMember({"adamw", "adamw-8bit"}))
      ->capture_default_str();
  app.add_flag("--offload-states", offload_states, "keep the optimizer's moments in host memory");
  app.add_option("--fused-update", fused_update,
                 "update each weight inside backward, so that no gradients are kept: in 1 pass, "
                 "clipped by the norm of the previous update, or in 2 passes, clipped exactly; "
                 "needs --accumulate 1")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
}

AdamWRecipe AdamWRecipe::with(double rate, double decay) const {
  AdamWRecipe recipe = *this;
  recipe.lr = static_cast<float>(rate);
  recipe.weight_decay = static_cast<float>(decay);
  return recipe;
}

double AdamWRecipe::estimator_states() const {
  const double gradients = fused_update ? 0 : 1, moments = optimizer == "adamw-8bit" ? 0.5 : 2;
  return 1 + gradients + (offload_states ? 0 : moments);
}

}  // namespace rw
