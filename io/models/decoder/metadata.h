// The configurations of decoders in the metadata of GGUF files: llama.cpp's architectures llama,
// qwen2, qwen3, gemma and gemma3.
#pragma once

#include "../../../models/decoder_config.h"
#include "../../formats/gguf.h"

namespace rw {

// The shape that a file's header tells. A file of llama with windows is a Mistral. The parameters
// of Llama 3's rotary embeddings, which files hold as factors of the frequencies
// (rope_freqs.weight), are found from these. Throws FileError, also for models that Decoder is not.
DecoderConfig parse_decoder_metadata(const GgufFile& file);
// The same the other way, for a file whose matrices are of `type`. llama.cpp does not use the
// windows of Mistral and Qwen. ValueError for what these files cannot say: another
// query_pre_attn_scalar than llama.cpp's.
GgufMetadata decoder_metadata(const DecoderConfig& config, GgufType type);

namespace detail {
inline const std::string rope_freqs = "rope_freqs.weight";
// The divisors of the frequencies of rotary embeddings.
std::vector<float> rope_stretches(const DecoderConfig& config);
}  // namespace detail

}  // namespace rw
