// The folders of decoders in Hugging Face's form: the names of files, and the shape in config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>

#include "../../../core/base/dtype.h"
#include "../../../models/decoder_config.h"

namespace rw {

// The folder's file with all tensors, and its file that names the files of several.
inline constexpr const char *decoder_tensors_file = "model.safetensors",
                            *decoder_index_file = "model.safetensors.index.json";

// The name of a float dtype in config.json.
const char* torch_dtype_name(DType dtype);

// Absent keys have the defaults of the model's class in Hugging Face's transformers, and unknown
// ones are ignored. Takes rotary embeddings as transformers 4 and 5 write them. Throws FileError,
// also for models that Decoder is not: mixtures of experts, soft caps, partial rotary embeddings.
DecoderConfig parse_decoder_config(const nlohmann::json& json, const std::filesystem::path& file);
// The same as transformers 4 writes it, which 5 reads. Throws ValueError for what the model's class
// in transformers cannot be: biases or windows that it does not have.
nlohmann::ordered_json decoder_config_json(const DecoderConfig& config);

}  // namespace rw
