// The commands of the BERT example: the options of each and its run().
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "../../core/files/folder.h"
#include "../../data/text/sentences.h"
#include "../../trainer/language/bert_tokenizer.h"
#include "../../trainer/trainer_options.h"
#include "steps.h"

namespace rw {

// The folder of a model, with config.json, model.safetensors and the files of its tokenizer as
// Hugging Face has them.
struct ModelFolder {
  std::filesystem::path folder;

  std::filesystem::path config() const { return path_in(folder, "config.json"); }
  std::filesystem::path weights() const { return path_in(folder, "model.safetensors"); }

  Tokenizer load_tokenizer() const { return read_bert_tokenizer(folder); }
  // Returns the configuration of a model of these tokens. Throws FileError naming both sizes if
  // they differ: ids without an embedding would give NaN, and embeddings without a token nothing to
  // print. FileError also if the files were not written together.
  BertConfig load_config(const Vocabulary& tokens) const;
  // Writes all files as one thing: whenever the writer is killed, the old model or the new one is
  // there. Weights of averages beside an old model go.
  void save(const Module& model, const Tokenizer& tokenizer, const BertConfig& config,
            const std::string& architecture, std::span<const std::string> class_names = {}) const;
};
std::string default_model_folder();  // a folder in the cache, which need not exist

// Batches are padded to multiples of this many tokens.
inline constexpr int64_t length_multiple = 8;
inline int64_t padded_length(int64_t length) {
  return (length + length_multiple - 1) / length_multiple * length_multiple;
}

// The options of both kinds of training.
struct BertOptions : TrainerOptions {
  AdamWSettings state;
  int64_t length = 64;

  void add_to(CLI::App& app, const TrainerWords& words);
  void check_numbers() const;  // throws ValueError
  // Returns what these options make of a model of this configuration.
  BertRecipe recipe(const BertConfig& config) const;
};

// Masked-language-model training from scratch.
struct Pretrain : BertOptions {
  Pretrain() : BertOptions{{.batch = 16, .steps = 700, .accumulate = 2, .checkpoint = "block"}} {}

  std::vector<std::string> text;
  std::string model = "tiny", vocabulary, save = default_model_folder();
  int64_t vocabulary_size = 4096;
  bool whole_words = false;

  void add_to(CLI::App& app);
  void run();
  // Returns the training of a model whose vocabulary has so many tokens.
  TrainingProgram program(int64_t vocabulary) const;
  BertRecipe recipe(int64_t vocabulary) const;
};

// Trains a classifier of sentences from a pre-trained model.
struct Finetune : BertOptions {
  Finetune() : BertOptions{{.checkpoint = "block"}} {}

  std::string task, model = default_model_folder(), save;
  int64_t classes = 2;  // with --plan

  void add_to(CLI::App& app);
  void run();
  // Returns the training of such a model with sequences of recipe.length tokens.
  TrainingProgram program(const BertRecipe& recipe) const;
  BertRecipe recipe(const BertConfig& config) const;
};

// Prints the classes of texts by a classifier that Finetune made.
struct Classify {
  DeviceOptions device;
  std::vector<std::string> texts, pairs;  // pairs: the second texts
  std::string file, model;
  int64_t batch = 32, length = 0, top = 5;  // length 0: the model's longest

  void add_to(CLI::App& app);
  void run() const;

 private:
  SentenceDataset read_texts() const;
  TrainingProgram program(const BertConfig& config, int64_t classes) const;
};

// Prints the most likely tokens for each [MASK] of a text.
struct FillMask {
  DeviceOptions device;
  std::string text, model = default_model_folder();
  int64_t top = 5;

  void add_to(CLI::App& app);
  void run() const;
  // Returns the program for a text of this many tokens, of which this many are masked.
  TrainingProgram program(const BertConfig& config, size_t tokens, size_t masks) const;
};

}  // namespace rw
