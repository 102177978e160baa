// Recipes: the hyperparameters with which models of a kind are usually trained. They make the
// difference between a default that learns and one that does not.
#pragma once

#include <cstdint>
#include <string>

#include "schedule.h"

namespace rw {

// A training, as far as its recipe depends on it.
struct TrainingWork {
  // Names what the model learns. Images are learnt by SGD with momentum, all else by AdamW.
  enum class Kind : uint8_t {
    language,         // the next token of a text
    masked_language,  // tokens of a text that are masked
    text_classes,     // the class of a text
    adapters,         // the next token, by low-rank adapters of a model whose weights stay
    speech,           // the transcript of a sound
    images            // the class of an image
  };

  Kind kind = Kind::images;  // which of them
  bool is_loaded = false;    // it begins with weights that are trained
  int64_t parameters = 0;    // of the model; 0: as few as in the smallest that is known
  int64_t batch = 1;         // samples of an update, with those of all its micro-batches
  int64_t samples = 0;       // to train on; 0: many
};

// How to train it.
struct TrainingRecipe {
  float lr = 1e-3f;                               // the highest learning rate, for that batch
  Schedule::Kind decay = Schedule::Kind::cosine;  // after the warm-up: cosine or linear
  float warmup = 0.1f;                            // the share of the updates that rise to lr
  float floor = 0;                                // the last rate over the highest one
  float max_norm = 0;                             // gradients are clipped to it; 0: they are not
  int64_t passes = 1;                             // over the data
  std::string reason = {};                        // for the rate, and for passes that are more

  // The schedule of so many updates. A single one has no warm-up.
  Schedule schedule(uint32_t updates) const;
  // The schedule and the clipping in words: "warm-up over 5 % of the updates, ...".
  std::string schedule_text() const;
};

// The recipe for some work. ValueError for a batch that is not positive and for negative counts.
//   const TrainingRecipe known = recipe({.kind = TrainingWork::Kind::images, .batch = 32});
//   SGD sgd(model.parameters(), {.lr = known.lr, .momentum = 0.9f});
//   sgd.set_schedule(known.schedule(updates));
// A program whose options derive from TrainerOptions writes `options.chosen = recipe({...})` before
// it asks for their rate(): Trainer then takes the schedule, and prints the choice with its reason.
TrainingRecipe recipe(const TrainingWork& work);

}  // namespace rw
