// The commands of the BERT program, and what they share.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "../../core/files/folder.h"
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
  AdamWRecipe update;
  int64_t length = 64;

  void add_to(CLI::App& app);
  void check_numbers() const;  // throws ValueError
  // Returns what these options make of a model of this configuration.
  BertRecipe recipe(const BertConfig& config) const;
};

// Each adds the options of a command to `app`, and returns what runs it.
std::function<void()> add_pretrain(CLI::App& app);   // trains on masked tokens from scratch
std::function<void()> add_finetune(CLI::App& app);   // trains a classifier from a model
std::function<void()> add_classify(CLI::App& app);   // prints the classes of texts
std::function<void()> add_fill_mask(CLI::App& app);  // prints the likeliest tokens for [MASK]

}  // namespace rw
