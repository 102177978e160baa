// AdamW as training programs offer it: how weights are updated, and where what that needs is.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "../dist/step_ranks.h"
#include "../nn/module.h"
#include "../optim/accumulation/fused_backward.h"

namespace CLI {
class App;
}

namespace rw {

// An AdamW to be made, with gradients clipped to a norm of 1.
struct AdamWRecipe {
  float lr = 1e-3f, weight_decay = 0.01f;  // the latter of matrices
  bool is_8bit = false;                    // the moments take 2 bytes per parameter instead of 8
  bool offload = false;                    // the moments lie in host memory
  std::optional<FusedPasses> fused = {};   // updates inside backward; needs one micro-batch

  // The optimizer of a model's parameters on this rank. ValueError for fused updates of several
  // micro-batches.
  std::unique_ptr<Optimizer> make(const Module& model, const StepRanks& ranks,
                                  uint32_t micro_batches) const;
  // The weight of a loss that is a mean over `count` samples: 1 if each backward updates.
  double weight(int64_t count) const { return fused ? 1 : static_cast<double>(count); }
};

// --optimizer, --offload-states and --fused-update.
struct AdamWSettings {
  std::string optimizer = "adamw";  // or adamw-8bit
  bool offload_states = false;      // the moments lie in host memory
  int fused_update = 0;             // passes; 0: an update of all weights after backward

  void add_to(CLI::App& app);  // the options
  // The recipe that the options ask for.
  AdamWRecipe recipe(double lr, double weight_decay) const;
  // Tensors of the weights' size that training holds, at least, for rough estimates.
  double estimator_states() const;
};

}  // namespace rw
