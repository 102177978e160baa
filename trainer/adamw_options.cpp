#include "trainer/adamw_options.h"

#include <CLI/CLI.hpp>

#include "optim/adam.h"
#include "optim/adam8bit.h"

namespace rw {

std::unique_ptr<Optimizer> AdamWRecipe::make(const Module& model, const StepRanks& ranks) const {
  std::vector<ParameterGroup> groups = ranks.placed(decay_groups(model.parameters(), weight_decay));
  const AdamWOptions options{.lr = lr};
  const bool in_8_bits = optimizer == "adamw-8bit" || ranks.has_states_in_8_bits();
  std::unique_ptr<Optimizer> made = in_8_bits ? ranks.wrap(AdamW8bit(std::move(groups), options))
                                              : ranks.wrap(AdamW(std::move(groups), options));
  made->set_max_norm(1);
  return made;
}

void AdamWRecipe::add_to(CLI::App& app) {
  app.add_option("--optimizer", optimizer,
                 "the optimizer: adamw, or adamw-8bit, whose moments take 2 bytes per parameter")
      ->check(CLI::IsMember({"adamw", "adamw-8bit"}))
      ->capture_default_str();
}

AdamWRecipe AdamWRecipe::with(double rate, double decay) const {
  AdamWRecipe recipe = *this;
  recipe.lr = static_cast<float>(rate);
  recipe.weight_decay = static_cast<float>(decay);
  return recipe;
}

}  // namespace rw
