// The options of the ResNet program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../../trainer/trainer_options.h"
#include "photos.h"
#include "steps.h"

namespace rw {

struct ResNetOptions : TrainerOptions {
  ResNetOptions()
      : TrainerOptions{.batch = 0,
                       .epochs = 0,
                       .weight_decay = 1e-4,
                       .samples = "images",
                       .batch_note = " (default 32, for CIFAR-10 128)",
                       .random = "weights, order and augmentation",
                       .decayed = "convolutions and the last layer",
                       .segments = {"block", "stage"},
                       .joins_segments = true} {}

  std::string model, norm = "batch", data, save, load;
  std::vector<std::string> predict;  // photographs
  int64_t image = 0;                 // 0: the data decides
  int classes = 0;                   // with --plan; 0: the data decides
  double test_share = 0.2;
  bool exact_batch_norm = false;
  uint32_t parts = 1;  // parts of a batch, with exact_batch_norm
  bool eval = false, strict = false;

  void add_to(CLI::App& app);
  // Checks the options, and fills in those that depend on the data (batch and epochs, where they
  // are 0) or on the file of --load.
  void complete();
  // The photographs, if --data is a folder of them; else null.
  const PhotoFolder* photos() const { return photos_.get(); }

  // Tells whether ranks normalise together: each has one of the batches that --exact-batch-norm
  // joins.
  bool joins_ranks() const;

  ResNetRecipe recipe(int classes) const;
  // Returns the program for images of `height` x `width` pixels.
  TrainingProgram program(const ResNetRecipe& recipe) const;

 private:
  void check_own_numbers() const;
  void take_from_file();
  int64_t image_of_data() const;
  void take_recipe(bool takes_passes);

  std::shared_ptr<const PhotoFolder> photos_;
};

}  // namespace rw
