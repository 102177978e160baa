// A language model with its tokenizer, in the files of Hugging Face and of llama.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "../../data/tokenizers/bpe_tokenizer.h"
#include "../../models/decoder.h"

namespace rw {

// The tokenizer of a model: a folder with tokenizer.json, that file itself, or the metadata of a
// GGUF file. FileError.
BpeTokenizer read_tokenizer(const std::filesystem::path& path);
// Throws FileError unless the embeddings of the model at `path` have a row for each token.
void check_vocabulary(const BpeTokenizer& tokenizer, const DecoderConfig& config,
                      const std::filesystem::path& path);

// A model and its tokenizer.
struct LanguageModel {
  BpeTokenizer tokenizer;
  std::unique_ptr<Decoder> model;  // on the default device

  // Opens a folder (config.json, safetensors, tokenizer.json) or a FILE.gguf, with parameters of
  // `dtype`. FileError.
  static LanguageModel open(const std::filesystem::path& path, DType dtype) {
    return open(path, dtype, dtype);
  }
  // The same with another dtype for vectors, as Module::to().
  static LanguageModel open(const std::filesystem::path& path, DType matrices, DType vectors);
};

// Writes a model with its tokenizer: where `path` ends in .gguf as such a file, of the type f32,
// f16, bf16 or q8_0, else as a folder that transformers opens, of the type f32, f16 or bf16. An
// empty type is that of the parameters. FileError, ValueError for another type.
void save_language_model(const std::filesystem::path& path, const Decoder& model,
                         const BpeTokenizer& tokenizer, const std::string& type = "");

}  // namespace rw
