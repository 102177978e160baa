// AdamW as training programs offer it.
#pragma once

#include <memory>
#include <string>

#include "../dist/step_ranks.h"
#include "../nn/module.h"
#include "../optim/base/optimizer.h"

namespace CLI {
class App;
}

namespace rw {

// An AdamW with gradients clipped to a norm of 1, and the option --optimizer.
struct AdamWRecipe {
  float lr = 1e-3f, weight_decay = 0.01f;  // the latter of matrices
  std::string optimizer = "adamw";         // or adamw-8bit: moments of 2 bytes per parameter, not 8

  void add_to(CLI::App& app);  // adds the option
  // The same with these numbers.
  AdamWRecipe with(double rate, double decay) const;
  // Tensors of the weights' size that training holds, for rough estimates.
  double estimator_states() const { return optimizer == "adamw-8bit" ? 2.5 : 4; }
  // The optimizer of a model's parameters on this rank.
  std::unique_ptr<Optimizer> make(const Module& model, const StepRanks& ranks) const;
};

}  // namespace rw
