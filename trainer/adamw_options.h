// AdamW as training programs offer it: how weights are updated, and where what that needs is.
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

// An AdamW with gradients clipped to a norm of 1, and the options --optimizer, --offload-states and
// --fused-update.
struct AdamWRecipe {
  float lr = 1e-3f, weight_decay = 0.01f;  // the latter of matrices
  std::string optimizer = "adamw";         // or adamw-8bit: moments of 2 bytes per parameter, not 8
  bool offload_states = false;             // the moments lie in host memory
  // Passes of updates inside backward, which need one micro-batch; 0: an update of all weights
  // after backward.
  int fused_update = 0;

  void add_to(CLI::App& app);  // adds the options
  // The same with these numbers.
  AdamWRecipe with(double rate, double decay) const;
  // Tensors of the weights' size that training holds, at least, for rough estimates.
  double estimator_states() const;
  // The optimizer of a model's parameters on this rank. ValueError for fused updates of several
  // micro-batches.
  std::unique_ptr<Optimizer> make(const Module& model, const StepRanks& ranks,
                                  uint32_t micro_batches) const;
  // The weight of a loss that is a mean over `count` samples: 1 if each backward updates.
  double weight(int64_t count) const { return fused_update ? 1 : static_cast<double>(count); }
};

}  // namespace rw
