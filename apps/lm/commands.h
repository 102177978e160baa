// The commands of the program for language models: each has its options and run().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../../trainer/language/text_generation.h"
#include "../../trainer/trainer_options.h"
#include "steps.h"

namespace rw {

std::string default_lm_folder();  // in the cache, which need not be there

// Trains a language model, from scratch or from a model in files.
struct LmTrain : TrainerOptions {
  LmTrain();

  std::vector<std::string> data;  // text files
  std::string config = "tiny";    // the model, where it is new
  std::string model;              // the model that it begins with
  std::string tokenizer;          // another than the model's own
  std::string save = default_lm_folder();
  std::string prompt = "The ";  // of the samples before and after
  int64_t length = 128;
  int64_t vocabulary_size = 0;  // of a new model; 0: as its config says
  AdamWSettings state;

  void add_to(CLI::App& app);
  void check_numbers() const;  // ValueError
  TokenWindowsOptions windows(int64_t batch_size, bool shuffle) const;
  void run();

 private:
  void complete();  // fills in what depends on the model
  // The training of a model whose tokenizer has so many tokens; 0: that is yet to be made.
  LmRecipe recipe(int64_t tokens);
  TrainingProgram program(const LmRecipe& recipe) const;
};

// How texts are continued, as options.
struct LmSampling {
  int64_t tokens = 128;
  SampleOptions sample = {.temperature = 0.8f, .top_p = 0.95f};
  uint64_t seed = 1;
  std::vector<std::string> stop;

  void add_to(CLI::App& app);
};

// Continues a prompt, or answers it.
struct LmGenerate {
  DeviceOptions device = {.dtype = ""};
  LmSampling sampling;
  std::string prompt, model = default_lm_folder();
  bool chat = false, no_cache = false;
  std::string tokenizer, chat_format, system;

  void add_to(CLI::App& app);
  void run();
};

// How well a model predicts a text.
struct LmPerplexity {
  DeviceOptions device = {.dtype = ""};
  std::string model = default_lm_folder(), tokenizer;
  std::vector<std::string> data;
  int64_t length = 512;

  void add_to(CLI::App& app);
  void run() const;
};

// Rewrites a model in another file format.
struct LmConvert {
  std::string from, to, type, tokenizer;

  void add_to(CLI::App& app);
  void run() const;
};

}  // namespace rw
