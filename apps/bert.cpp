// BERT: pre-trains on text with masked tokens, in f16 on Vulkan, and shows where the memory went.
// `finetune` trains a classifier from the result, `classify` uses that classifier, and `fill-mask`
// uses the model itself.
#include <CLI/CLI.hpp>

#include "apps/bert/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Pre-trains BERT on text, with masked tokens.");
  rw::Pretrain pretrain;
  pretrain.add_to(app);
  rw::Finetune finetune;
  CLI::App& fine = *app.add_subcommand("finetune", "train a classifier of sentences from a model");
  finetune.add_to(fine);
  rw::Classify classify;
  CLI::App& ask =
      *app.add_subcommand("classify", "print the classes of texts by a trained classifier");
  classify.add_to(ask);
  rw::FillMask fill_mask;
  CLI::App& fill =
      *app.add_subcommand("fill-mask", "print the most likely tokens for [MASK] in a text");
  fill_mask.add_to(fill);
  return rw::run_program(app, argc, argv, [&] {
    if (fine)
      finetune.run();
    else if (ask)
      classify.run();
    else if (fill)
      fill_mask.run();
    else
      pretrain.run();
  });
}
