// The tensors of decoders in GGUF files, whose names and layouts are llama.cpp's.
#pragma once

#include <map>
#include <string>

#include "../../../nn/adapters/frozen_weights.h"
#include "../../../ops/network/block_matrix.h"
#include "../decoder_types.h"
#include "metadata.h"

namespace rw {

// Fills the parameters of a Decoder of this shape, which have Hugging Face's names, and its
// matrices in blocks, but for those that stay in the file. FileError before anything is written,
// unless the file has these tensors and no others, with blocks of these types.
void load_decoder_tensors(const GgufFile& file, const Module& model, const DecoderConfig& config);
// Where those lie that have no memory.
std::vector<WeightInFile> matrices_in_gguf(const GgufFile& file, const Module& model,
                                           const DecoderConfig& config);
// The matrices in blocks, by the names of their weights.
std::map<std::string, const BlockMatrix*> all_blocks(const Module& model);
// Whether a matrix has no memory, and is in no host memory either: it stays in a file.
bool stays_in_file(const Tensor& matrix);
bool is_quantised(const GgufFile& file);  // whether it has quantised matrices
// The types of a file's matrices. FileError for quantised types that are not read.
DecoderTypes decoder_types(const GgufFile& file, const DecoderConfig& config);
// ValueError if the model has weights in blocks, which are not written.
void check_has_floats(const Module& model);
// The parameters as a file holds them: matrices of matrix_type(), and all else as f32. What q and k
// of llama become is a view.
std::vector<GgufSource> decoder_tensors(const Module& model, const DecoderConfig& config,
                                        GgufType type);

}  // namespace rw
