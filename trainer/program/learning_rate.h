// The options of the learning rate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "../../optim/schedules/recipe.h"

namespace CLI {
class App;
}

namespace rw {

// The options --lr, --scale-lr and --reference-batch.
struct LearningRateOptions {
  std::optional<double> lr = {};  // empty: the recipe has it, for that batch
  std::string rule = "none";      // how it scales with the batch: linear, sqrt or none
  int64_t reference = 0;          // samples per update that `lr` is for; 0: not given

  // Adds the options.
  void add_to(CLI::App& app);
  // Returns the rate for updates from `batch` samples in `accumulate` steps; without --lr it is
  // that of the recipe. ValueError for options that make no sense.
  double rate(int64_t batch, uint32_t accumulate, const TrainingRecipe& chosen) const;
  // Says how the rate was scaled, for a line of text: ", learning rate 0.4 (0.1 for 128 ...", or
  // nothing.
  std::string str(int64_t batch, uint32_t accumulate) const;
  // Says which rate was chosen and why, with the schedule; nothing for a recipe without a reason.
  std::string chosen_text(double rate, const TrainingRecipe& chosen) const;
};

}  // namespace rw
