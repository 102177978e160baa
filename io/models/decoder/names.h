// The names of a decoder's parameters in GGUF files, and their layout there.
#pragma once

#include <string>

#include "../../../core/tensor/tensor.h"
#include "../../../models/decoder_config.h"

namespace rw {

// llama.cpp's name for the architecture: llama, qwen2, qwen3, gemma or gemma3.
std::string gguf_architecture(const DecoderConfig& config);
// A parameter's name in these files, by that in Hugging Face's classes.
std::string gguf_name(const std::string& name, const DecoderConfig& config);
// A view of a parameter, or of another tensor with its rows, that has the elements in the order of
// these files: those of q and k of llama are another one. `name` is Hugging Face's.
Tensor in_gguf_order(const std::string& name, const Tensor& t, const DecoderConfig& config);

}  // namespace rw
