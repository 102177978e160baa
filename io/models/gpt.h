// GPT-2 in Hugging Face's files: config.json and model.safetensors.
#pragma once

#include <filesystem>

#include "../../models/gpt.h"
#include "model.h"

namespace rw {

// Absent keys have GPT-2's defaults, and unknown ones are ignored. Throws FileError, also for
// models that this GPT is not: another activation, a head of its own.
GptConfig read_gpt_config(const std::filesystem::path& file);
void write_gpt_config(const std::filesystem::path& file, const GptConfig& config);

// Handles on the model's tensors under the names and in the layout of the files, where the weights
// of linear layers are [in, out] (Conv1D): transposed views of ours.
StateDict gpt_state_dict(const Module& model);

// Writes a GptModel or GptLMHeadModel as GPT2LMHeadModel.save_pretrained does, without the head,
// which is the word embeddings. Floats are stored as `dtype`. Throws FileError.
void save_gpt(const std::filesystem::path& file, const Module& model, DType dtype = DType::f32);
// Fills a model from a file of its size, of the bare model ("wte.weight") or with its head
// ("transformer.wte.weight"). The masks in old files, and a head, are ignored. Throws FileError
// before anything is written.
LoadResult load_gpt(const std::filesystem::path& file, Module& model);

}  // namespace rw
