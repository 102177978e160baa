// Adapters in files: the folders of Hugging Face's PEFT, and GGUF files for llama.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "../../models/decoder.h"
#include "../../nn/adapters/lora.h"

namespace rw {

// The model of an adapter, as its folder tells.
struct AdapterInfo {
  std::string base_model;               // where the model is: a folder, or a name at Hugging Face
  std::string task_type = "CAUSAL_LM";  // PEFT's name; empty: none
};

// Writes the adapters of a model as a folder that PEFT reads: adapter_config.json and
// adapter_model.safetensors, with tensors base_model.model.NAME.lora_A.weight and so on, in f32.
// The model's parameters must have Hugging Face's names. The folder is made if it is missing; an
// adapter that it has is replaced as a whole (core/files/folder.h). ValueError if there are no
// adapters, and for one of a packed projection (in_proj), which PEFT has in another form.
// FileError.
void save_adapter(const std::filesystem::path& folder, const Module& model,
                  const AdapterInfo& info = {});

// The settings of the adapter in such a folder, and what it says about its model. FileError, also
// for settings that adapters here do not have, by their names: another peft_type, bias,
// modules_to_save, layers_to_transform and so on. Names in rank_pattern and alpha_pattern are those
// of layers or their last parts, and no expressions.
std::pair<LoraOptions, AdapterInfo> read_adapter_config(const std::filesystem::path& folder);

// Gives the model the adapters of such a folder, as add_lora() does, with their values. FileError
// before anything changes, also for tensors of layers that the model does not have, which would do
// nothing, for layers that lack theirs, and for shapes of another model. ValueError if the model
// has adapters.
std::vector<NamedLora> load_adapter(const std::filesystem::path& folder, Module& model);

// Writes the adapters of a decoder as a GGUF file for llama.cpp (llama-cli --lora), in f32. Such a
// file has alpha / rank as the scale: that of rsLoRA is written as another alpha, and where layers
// have other scales than the first one, their B has the ratio. ValueError if
// there are no adapters, and for DoRA, for which there is no form: merge it into the model
// (merge_lora). FileError.
void save_adapter_gguf(const std::filesystem::path& file, const Decoder& model);

}  // namespace rw
