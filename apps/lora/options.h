// The options of the program that fine-tunes language models by adapters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../../data/chat/packed_examples.h"
#include "../../trainer/trainer_options.h"
#include "steps.h"

namespace CLI {
class App;
}

namespace rw {

std::string default_adapter_folder();  // in the cache, which need not be there

// Fine-tunes a language model from files, on examples from a file.
struct LoraTrain : TrainerOptions {
  LoraTrain()
      : TrainerOptions{.device = {.dtype = ""},
                       .batch = 8,
                       .weight_decay = 0,
                       .samples = "rows",
                       .random = "adapters, order and validation",
                       .segments = {"block"},
                       .joins_segments = true,
                       .divides_mlps = true,
                       .has_frozen_file = true,
                       .unit = "tokens",
                       .has_accuracy = false,
                       .figures = "validation_"} {}

  std::string model;             // the base: a folder or FILE.gguf
  std::string config;            // a preset to plan for, in place of the base
  std::string type = "q4_k";     // of its matrices, as GGUF's, or nf4
  std::string tokenizer;         // another than the model's own
  std::string data, validation;  // files of examples
  double test_share = 0.05;      // of `data`, where there is no file for the validation
  std::string chat_format;       // in place of the model's template
  bool all_tokens = false;       // not only answers count
  bool refuse_long = false;      // examples that are too long are errors
  bool no_packing = false;       // one example a row
  int64_t length = 512;          // tokens of a row
  LoraOptions adapter;
  std::string save = default_adapter_folder();
  std::string merge;   // a folder or FILE.gguf for the merged model
  std::string prompt;  // of the sample; empty: one of the validation
  AdamWRecipe update;

  void add_to(CLI::App& app);
  void check_numbers() const;  // ValueError
  PackedExamplesOptions rows(int64_t batch_size, bool is_training) const;
  // Whether the adapter is written: a run without a model of the user's keeps it only if asked to.
  bool saves() const;
  const std::shared_ptr<const DecoderFiles>& files() const { return files_; }  // of the base
  void run();

 private:
  void complete();          // fills in what depends on the model
  LoraRecipe base() const;  // a recipe with the shape of the model alone
  // The recipe for so many rows; 0: their number is not known yet.
  LoraRecipe recipe(LoraRecipe made, int64_t rows);
  TrainingProgram program(const LoraRecipe& recipe) const;
  // Why the base's matrices may not stay in its file; empty: they may.
  std::string not_in_file(const LoraRecipe& recipe) const;
  void train();

  bool is_demo_ = false;
  std::shared_ptr<const DecoderFiles> files_;
};

}  // namespace rw
