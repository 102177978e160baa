#include <CLI/CLI.hpp>

#include "apps/bert/commands.h"

namespace rw {

void OptimizerOptions::add_to(CLI::App& app) {
  app.add_option("--optimizer", optimizer, "adamw, or adamw-8bit: its moments in 2 bytes")
      ->check(CLI::IsMember({"adamw", "adamw-8bit"}))
      ->capture_default_str();
  app.add_flag("--offload-states", offload_states, "keep the optimizer's moments in host memory");
  app.add_option("--fused-update", fused_update,
                 "update each weight inside backward, so that no gradients are kept: in 1 pass, "
                 "clipped by the norm of the update before, or exactly, in 2; needs --accumulate 1")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
}

void OptimizerOptions::apply(BertRecipe& recipe) const {
  recipe.optimizer = is_8bit() ? BertOptimizer::adamw_8bit : BertOptimizer::adamw;
  recipe.offload = offload_states;
  if (fused_update) recipe.fused = fused_update == 1 ? FusedPasses::one : FusedPasses::two;
}

double OptimizerOptions::estimator_states() const {
  const double gradients = fused_update ? 0 : 1, moments = is_8bit() ? 0.5 : 2;
  return 1 + gradients + (offload_states ? 0 : moments);
}

void BertOptions::add_to(CLI::App& app, const TrainerWords& words) {
  state.add_to(app);
  TrainerWords own = words;
  own.segments = {"block"};
  own.joins_segments = true;
  TrainerOptions::add_to(app, own);
}

void BertOptions::check_numbers() const {
  TrainerOptions::check_numbers();
  check(length >= 8, "options", "--seq must be at least 8, got {}", length);
}

BertRecipe BertOptions::recipe(const BertConfig& config) const {
  check(padded_length(length) <= config.max_position_embeddings, "options",
        "--seq must be at most the model's {}, got {}", config.max_position_embeddings, length);
  BertRecipe recipe = {.config = config,
                       .length = padded_length(length),
                       .lr = static_cast<float>(rate()),
                       .weight_decay = static_cast<float>(weight_decay),
                       .numerics = numerics,
                       .average = average};
  state.apply(recipe);
  return recipe;
}

}  // namespace rw
