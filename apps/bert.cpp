// BERT: pre-trains on text with masked tokens, in f16 on Vulkan, and shows where the memory went.
// `finetune` trains a classifier from the result, `classify` uses that classifier, and `fill-mask`
// uses the model itself.
#include <CLI/CLI.hpp>

#include "apps/bert/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Pre-trains BERT on text, with masked tokens.");
  const auto pretrain = rw::add_pretrain(app);
  CLI::App& fine = *app.add_subcommand("finetune", "train a classifier of sentences from a model");
  const auto finetune = rw::add_finetune(fine);
  CLI::App& ask =
      *app.add_subcommand("classify", "print the classes of texts by a trained classifier");
  const auto classify = rw::add_classify(ask);
  CLI::App& fill =
      *app.add_subcommand("fill-mask", "print the most likely tokens for [MASK] in a text");
  const auto fill_mask = rw::add_fill_mask(fill);
  return rw::run_program(app, argc, argv, [&] {
    if (fine)
      finetune();
    else if (ask)
      classify();
    else if (fill)
      fill_mask();
    else
      pretrain();
  });
}
