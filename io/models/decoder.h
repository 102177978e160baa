// Decoder language models in the files of others: Hugging Face's folders and llama.cpp's GGUF.
// Tensors stream between file and device in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "../../models/decoder.h"
#include "../../nn/adapters/frozen_weights.h"
#include "../formats/gguf.h"
#include "decoder_types.h"

namespace rw {

// Tokens with a meaning of their own, by their numbers.
struct SpecialTokens {
  std::optional<int64_t> bos;  // begins a text
  std::vector<int64_t> eos;    // any of them ends what is generated
  std::optional<int64_t> pad;  // fills batches

  bool operator==(const SpecialTokens&) const = default;
};

// The shape of the model in a folder, by its config.json, which may be named itself, or in a .gguf
// file, by its header. Absent keys have the defaults of the model's class in Hugging Face's
// transformers. Throws FileError, also for models that Decoder is not: mixtures of experts, soft
// caps, partial rotary embeddings.
DecoderConfig read_decoder_config(const std::filesystem::path& path);
// Its special tokens: those of the folder's generation_config.json, or else of its config.json.
// None where the files say nothing. Throws FileError.
SpecialTokens read_special_tokens(const std::filesystem::path& path);

// The narrowest float dtype that has all values of the matrices of such a folder or file: f16 or
// bf16 if they all are of it, else f32, also for quantised ones. FileError.
DType decoder_dtype(const std::filesystem::path& path);
// The dtype to compute such a model in: that which the folder's config.json names, or else that of
// the matrices, for quantised ones bf16. Where activations are known to leave the range of f16, as
// Gemma's do, bf16 in its place. FileError.
DType working_dtype(const std::filesystem::path& path);
// Whether such a file has quantised matrices.
bool is_quantised(const std::filesystem::path& path);

// The types of such a folder, which has floats alone, or file. FileError, also for quantised types
// that are not read.
DecoderTypes read_decoder_types(const std::filesystem::path& path);

// Fills a model of this shape from such a folder, with model.safetensors or its parts, or from
// such a file, whose quantised tensors become floats, unless the model has them in blocks. The
// folder of a model with a tied head may have the head, if it equals the embeddings. FileError
// before anything is written, if names or shapes do not agree, or if the folder has files that
// save_decoder() did not write together. Matrices that stay in the file (make_decoder) are left
// out.
void load_decoder(const std::filesystem::path& path, Decoder& model);

// Whether the matrices of such a folder or file have the bytes that a model has that computes in
// `dtype`, so that they may stay there: floats of this dtype, or blocks. FileError.
bool holds_matrices_as(const std::filesystem::path& path, DType dtype);
// Where they lie, for a model that make_decoder() made of it so, and that has no adapters yet. On a
// device that only predicts no file is read, and none needs to be there. FileError unless the file
// has them, as they are in the model.
std::vector<WeightInFile> matrices_in_file(const std::filesystem::path& path, const Decoder& model);

// How save_decoder() writes.
struct SaveDecoderOptions {
  DType dtype = DType::f32;              // of all tensors
  uint64_t shard_bytes = 5'000'000'000;  // of the tensors of one file; one tensor may have more
  SpecialTokens tokens = {};             // for config.json and generation_config.json
  // Writes the files of the model's tokenizer into this folder, as BpeTokenizer::save() does. They
  // become part of the model's, and those of an older tokenizer go.
  std::function<void(const std::filesystem::path& folder)> write_tokenizer = {};
};
// Writes a folder that Hugging Face's transformers read: config.json, generation_config.json and
// the tensors in one file or, if they have more than shard_bytes, in several with an index. The
// folder is made if it is missing. A model that it has is replaced as a whole: whenever the writer
// is killed, load_decoder() finds the old one or the new one. The list rewind-files.txt names the
// files with sizes and hashes, and a mixture with others is refused. ValueError for what the
// model's class in transformers cannot be, for weights in blocks, and for a model with adapters.
// FileError.
void save_decoder(const std::filesystem::path& folder, const Decoder& model,
                  const SaveDecoderOptions& options = {});

// Writes a GGUF file that llama.cpp reads, if `more` has the tokenizer ("tokenizer.ggml.model" and
// so on, with as many tokens as the embeddings have rows): matrices as `type`, with
// llama.cpp's exceptions (decoder_tensors), and vectors as f32. What `more` says about the model
// itself is ignored. llama.cpp does not use windows of Mistral and Qwen. ValueError for what such a
// file cannot say, for weights in blocks, and for a model with adapters. FileError.
void save_decoder_gguf(const std::filesystem::path& file, const Decoder& model, GgufType type,
                       const GgufMetadata& more = {});

}  // namespace rw
