// Writes decoder language models: Hugging Face's folders and llama.cpp's GGUF.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "../../models/decoder.h"
#include "../formats/gguf.h"
#include "decoder_files.h"

namespace rw {

// How save_decoder() writes.
struct SaveDecoderOptions {
  DType dtype = DType::f32;              // of all tensors
  bool nf4 = false;                      // but for those of linear layers, see below
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
//
// With `nf4`, all linear layers but a head are in NF4 with double quantisation, with the bits of
// bitsandbytes, by which transformers opens the folder. ValueError for rows that are no whole
// blocks of 64, and for weights that are not finite.
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
