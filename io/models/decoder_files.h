// Decoder language models in the files of others: Hugging Face's folders and llama.cpp's GGUF.
// Tensors stream between file and device in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <optional>
#include <vector>

#include "../../models/decoder.h"
#include "../../nn/adapters/frozen_weights.h"
#include "../formats/gguf.h"
#include "../formats/safetensors.h"
#include "decoder_types.h"

namespace rw {

// Tokens with a meaning of their own, by their numbers.
struct SpecialTokens {
  std::optional<int64_t> bos;  // begins a text
  std::vector<int64_t> eos;    // any of them ends what is generated
  std::optional<int64_t> pad;  // fills batches

  bool operator==(const SpecialTokens&) const = default;
};

// The files of a model, whose configuration and headers are read once: the header of a GGUF file
// has the whole vocabulary. Everything here throws FileError.
class DecoderFiles {
 public:
  // A folder with config.json, or a .gguf file. Absent keys have the defaults of the model's class
  // in Hugging Face's transformers. FileError also for models that Decoder is not: mixtures of
  // experts, soft caps, partial rotary embeddings.
  explicit DecoderFiles(std::filesystem::path path);
  DecoderFiles(const DecoderFiles&) = delete;
  DecoderFiles& operator=(const DecoderFiles&) = delete;

  const std::filesystem::path& path() const { return path_; }         // as it was given
  const GgufFile* gguf() const { return gguf_ ? &*gguf_ : nullptr; }  // null: a folder
  const std::list<SafetensorsFile>& parts() const { return parts_; }  // of a folder
  const DecoderConfig& config() const { return config_; }             // the model's shape
  // Those of the folder's generation_config.json, or else of its config.json. None where the files
  // say nothing.
  SpecialTokens special_tokens() const;

  bool is_quantised() const;  // whether matrices are
  // The types of the matrices; those of a folder are floats, or NF4 as bitsandbytes stores it. What
  // is not named is floats. FileError for quantised types that are not read.
  DecoderTypes types() const;
  // The narrowest float dtype that has all values of the matrices: f16 or bf16 if they all are of
  // it, else f32, also for quantised ones.
  DType stored_dtype() const;
  // The dtype to compute the model in: that which the folder's config.json names, or else that of
  // the matrices, for quantised ones bf16. Where activations are known to leave the range of f16,
  // as Gemma's do, bf16 in its place.
  DType working_dtype() const;
  // Whether the matrices have the bytes that a model has that computes in `dtype`, so that they may
  // stay in the file: floats of this dtype, or blocks.
  bool holds_matrices_as(DType dtype) const;

  // A text that is another one for other weights: of the size and a hash of the names, types and
  // shapes of all tensors and of some of the bytes of each.
  std::string fingerprint() const;

  // Fills a model of this shape, from model.safetensors or its parts, or from the GGUF file.
  // Quantised tensors become floats, unless the model has them in blocks. The folder of a model
  // with a tied head may have the head, if it equals the embeddings. FileError before anything is
  // written, if names or shapes do not agree, or if the folder has files that save_decoder() did
  // not write together. Matrices that stay in the file (make_decoder) are left out.
  void load(Decoder& model) const;

 private:
  std::filesystem::path path_;
  std::optional<GgufFile> gguf_;
  DecoderConfig config_;
  std::list<SafetensorsFile> parts_;  // of a folder; none: a configuration alone, to plan for
};

// The shape of the model in a folder, by its config.json, which may be named itself, or in a .gguf
// file (DecoderFiles). FileError.
DecoderConfig read_decoder_config(const std::filesystem::path& path);
// Where the matrices lie that stay in the files, for a model that make_decoder() made of these so,
// and that has no adapters yet. On a device that only predicts no file is read, and `files` may be
// null. FileError unless the files have them as they are in the model.
std::vector<WeightInFile> matrices_in_file(const DecoderFiles* files, const Decoder& model);
// Fills a model from such a folder or file (DecoderFiles::load). FileError.
void load_decoder(const std::filesystem::path& path, Decoder& model);

}  // namespace rw
