// Decoders in GGUF files: llama.cpp's architectures llama, qwen2, qwen3, gemma and gemma3.
#pragma once

#include "../../models/decoder_config.h"
#include "../../nn/module.h"
#include "../formats/gguf.h"

namespace rw {

// The shape that a file's header tells. A file of llama with windows is a Mistral. The parameters
// of Llama 3's rotary embeddings, which files hold as factors of the frequencies
// (rope_freqs.weight), are found from these. Throws FileError, also for models that Decoder is not.
DecoderConfig parse_decoder_metadata(const GgufFile& file);
// The same the other way, for a file whose matrices are of `type`. llama.cpp does not use the
// windows of Mistral and Qwen. ValueError for what these files cannot say: another
// query_pre_attn_scalar than llama.cpp's.
GgufMetadata decoder_metadata(const DecoderConfig& config, GgufType type);

// Fills the parameters of a Decoder of this shape, which have Hugging Face's names. FileError
// before anything is written, unless the file has these tensors and no others.
void load_decoder_tensors(const GgufFile& file, const Module& model, const DecoderConfig& config);
// The parameters as a file holds them: matrices as `type`, or f16 where their rows are no whole
// blocks of it, and all else as f32. What q and k of llama become is a view.
std::vector<GgufSource> decoder_tensors(const Module& model, const DecoderConfig& config,
                                        GgufType type);

}  // namespace rw
