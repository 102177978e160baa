#include <CLI/CLI.hpp>

#include "apps/bert/commands.h"

namespace rw {

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
  return {.config = config,
          .length = padded_length(length),
          .update = state.recipe(rate(), weight_decay),
          .numerics = numerics,
          .average = average};
}

}  // namespace rw
