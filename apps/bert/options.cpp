#include <CLI/CLI.hpp>

#include "apps/bert/commands.h"

namespace rw {

void BertOptions::add_to(CLI::App& app) {
  segments = {"block"};
  joins_segments = true;
  update.add_to(app);
  TrainerOptions::add_to(app);
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
          .update = update.with(rate(), weight_decay),
          .numerics = numerics,
          .average = average};
}

}  // namespace rw
