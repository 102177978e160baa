// The types of a decoder's matrices: floats, or blocks as GGUF files have them, or NF4 as folders
// have it that transformers save with bitsandbytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "../../core/blocks/block_type.h"
#include "../../models/decoder.h"
#include "../formats/gguf_types.h"

namespace rw {

// The blocks in which a decoder's matrices are, by the names of the parameters; null: floats.
using DecoderTypes = std::map<std::string, const BlockType*>;

// The shapes of the matrices of a Decoder, embeddings among them, by the names of the parameters.
std::map<std::string, Shape> decoder_matrices(const DecoderConfig& config);
// The type of a matrix of `columns` elements a row, of this name in GGUF, in a file whose matrices
// are of `type`. As llama.cpp has it, the head is q6_k where that is q4_k or q5_k, and where rows
// are no whole blocks it is another one of about as many bits, or f16.
GgufType matrix_type(const std::string& name, int64_t columns, GgufType type,
                     const DecoderConfig& config);
// The types of all matrices in such a file.
DecoderTypes decoder_types(const DecoderConfig& config, GgufType type);
// The same with blocks::nf4 for all matrices but embeddings and head, as QLoRA has it; those whose
// rows are no whole blocks are floats, too.
DecoderTypes nf4_types(const DecoderConfig& config);

// A decoder whose values are loaded next, or for plans: quantised matrices in their blocks
// (nn/adapters/block_layers.h), which are frozen; other matrices, biases and what embeddings return
// are of `dtype`, norms f32. No matrix is in memory in another form. If they stay in the file,
// matrices of 64 KiB or more have no memory at all: load_decoder() leaves them out, and
// FrozenWeights brings them (matrices_in_file).
std::unique_ptr<Decoder> make_decoder(const DecoderConfig& config, const DecoderTypes& types,
                                      DType dtype, bool stay_in_file = false);

}  // namespace rw
