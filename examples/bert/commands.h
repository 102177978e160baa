// The commands of the BERT example: each is its options and run().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/common/program.h"

namespace rw {

// Where a model lies: config.json, model.safetensors and vocab.txt, as Hugging Face has them.
struct ModelFolder {
  std::filesystem::path folder;

  std::filesystem::path config() const { return folder / "config.json"; }
  std::filesystem::path weights() const { return folder / "model.safetensors"; }
  std::filesystem::path vocabulary() const { return folder / "vocab.txt"; }
};
std::string default_model_folder();  // in the cache

// Masked-language-model training from scratch.
struct Pretrain {
  DeviceOptions device;
  std::vector<std::string> text;
  std::string model = "tiny", vocabulary, save = default_model_folder(), resume, report;
  int64_t vocabulary_size = 4096, length = 64, batch = 16, steps = 700, save_every = 100;
  uint32_t accumulate = 2;
  int checkpoint_every = 1;
  double lr = 2e-3, weight_decay = 0.01;
  bool whole_words = false, quiet = false;
  uint64_t seed = 1;

  void add_to(CLI::App& app);
  void run() const;
};

// Trains a classifier of sentences from a pre-trained model.
struct Finetune {
  DeviceOptions device;
  std::string task, model = default_model_folder(), save, report;
  int64_t length = 64, batch = 32, epochs = 1, steps = 0;
  uint32_t accumulate = 1;
  int checkpoint_every = 1;
  double lr = 1e-3, weight_decay = 0.01;
  bool quiet = false;
  uint64_t seed = 1;

  void add_to(CLI::App& app);
  void run() const;
};

// The most likely tokens for each [MASK] of a text.
struct FillMask {
  DeviceOptions device;
  std::string text, model = default_model_folder();
  int64_t top = 5;

  void add_to(CLI::App& app);
  void run() const;
};

}  // namespace rw
