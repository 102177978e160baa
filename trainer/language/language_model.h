// A language model with its tokenizer, in the files of Hugging Face and of llama.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "../../data/tokenizers/bpe_tokenizer.h"
#include "../../io/models/decoder_files.h"
#include "../../models/decoder.h"

namespace rw {

// The tokenizer of a model: a folder with tokenizer.json, that file itself, or the metadata of a
// GGUF file. FileError.
BpeTokenizer read_tokenizer(const std::filesystem::path& path);
// The tokenizer for a model: its own, or another one at `path`, where generated texts end as the
// model's files say. FileError, also unless the model's embeddings have a row for each token.
BpeTokenizer read_tokenizer(const DecoderFiles& model, const std::filesystem::path& path = {});
// Throws FileError unless the embeddings of the model that is called `model` have a row for each
// token. Added tokens may lack theirs: those of images in Gemma's texts.
void check_vocabulary(const BpeTokenizer& tokenizer, const DecoderConfig& config,
                      const std::filesystem::path& model);
// Throws ValueError for a token of a text that has no row in embeddings of `vocab_size` rows.
void check_tokens(std::span<const int32_t> ids, const BpeTokenizer& tokenizer, int64_t vocab_size);

// A model and its tokenizer.
struct LanguageModel {
  BpeTokenizer tokenizer;
  std::unique_ptr<Decoder> model;  // on the default device

  // Opens a folder (config.json, safetensors, tokenizer.json) or a FILE.gguf, with parameters of
  // `dtype`, and with the tokenizer of another file, if there is one. Quantised matrices stay in
  // their blocks, and are frozen (make_decoder). FileError.
  static LanguageModel open(const DecoderFiles& files, DType dtype,
                            const std::filesystem::path& tokenizer = {});
  static LanguageModel open(const std::filesystem::path& path, DType dtype,
                            const std::filesystem::path& tokenizer = {}) {
    return open(DecoderFiles(path), dtype, tokenizer);
  }
  // The same with floats alone, and with another dtype for vectors, as Module::to().
  static LanguageModel open_floats(const DecoderFiles& files, DType matrices, DType vectors,
                                   const std::filesystem::path& tokenizer = {});
  // The same with all in f32, and the adapter of a folder (load_adapter) in the weights: also of
  // files whose matrices are quantised.
  static LanguageModel open_merged(const DecoderFiles& files, const std::filesystem::path& adapter,
                                   const std::filesystem::path& tokenizer = {});
};

// Writes a model with its tokenizer: where `path` ends in .gguf as such a file, of the type f32,
// f16, bf16 or one of blocks (GgufType), else as a folder that transformers opens, of the type f32,
// f16, bf16, or nf4 for the matrices (SaveDecoderOptions). An empty type is that of the parameters.
// FileError, ValueError for another type.
void save_language_model(const std::filesystem::path& path, const Decoder& model,
                         const BpeTokenizer& tokenizer, const std::string& type = "");

}  // namespace rw
