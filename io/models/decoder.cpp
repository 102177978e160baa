#include "io/models/decoder.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>

#include "core/files/folder.h"
#include "io/models/config_file.h"
#include "io/models/decoder/gguf.h"
#include "io/models/decoder/json.h"
#include "io/models/decoder/nf4.h"
#include "io/models/model.h"
#include "nn/adapters/lora.h"
#include "ops/operators.h"

namespace rw {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

void write_json(const fs::path& file, const OrderedJson& json) {
  AtomicFile out(file);
  out.write(json.dump(2) + "\n");
  out.commit();
}

OrderedJson tokens_json(const SpecialTokens& tokens) {
  const auto one = [](const std::optional<int64_t>& id) {
    return id ? OrderedJson(*id) : OrderedJson(nullptr);
  };
  OrderedJson json = {{"bos_token_id", one(tokens.bos)},
                      {"eos_token_id", tokens.eos},
                      {"pad_token_id", one(tokens.pad)}};
  if (tokens.eos.empty()) json["eos_token_id"] = nullptr;
  if (tokens.eos.size() == 1) json["eos_token_id"] = tokens.eos.front();
  return json;
}

// The tensors of the folder as they are stored.
StateDict stored_tensors(const Decoder& model, const SaveDecoderOptions& options) {
  if (!options.nf4) return state_dict(model);
  const NoGrad guard;
  const std::map<std::string, Shape> matrices = decoder_matrices(model.config());
  StateDict tensors;
  for (const auto& [name, tensor] : state_dict(model)) {
    const bool is_table = name == "model.embed_tokens.weight" || name == "lm_head.weight";
    if (!matrices.contains(name) || is_table) {
      tensors.push_back({name, cast(tensor, options.dtype)});
      continue;
    }
    for (NamedTensor& part : nf4_tensors(name, tensor, options.dtype))
      tensors.push_back(std::move(part));
  }
  return tensors;
}

// The tensors of each file, in their order.
std::vector<StateDict> shards(const Decoder& model, const SaveDecoderOptions& options,
                              uint64_t& total) {
  std::vector<StateDict> parts(1);
  uint64_t taken = 0;
  total = 0;
  for (NamedTensor& t : stored_tensors(model, options)) {
    const DType dtype = options.nf4 ? t.tensor.dtype() : options.dtype;
    const uint64_t bytes = static_cast<uint64_t>(t.tensor.numel()) * size_of(dtype);
    if (taken + bytes > options.shard_bytes && !parts.back().empty()) {
      parts.emplace_back();
      taken = 0;
    }
    parts.back().push_back(std::move(t));
    taken += bytes;
    total += bytes;
  }
  return parts;
}

void check_merged(const char* op, const Decoder& model) {
  check(lora_adapters(model).empty(), op,
        "the model has adapters, which its files do not hold; merge them (merge_lora), or save "
        "them apart (save_adapter)");
}

// The files of an older model that a new one of other files would be mixed with. Those of its
// tokenizer stay if no tokenizer comes with the new one.
bool is_of_old_model(const std::string& name, bool has_tokenizer) {
  if (name == decoder_index_file || (name.starts_with("model") && name.ends_with(".safetensors")))
    return true;
  constexpr std::array of_tokenizers = {
      "added_tokens.json",       "chat_template.jinja", "chat_template.json", "merges.txt",
      "special_tokens_map.json", "tokenizer.model",     "vocab.json"};
  return has_tokenizer && std::ranges::find(of_tokenizers, name) != of_tokenizers.end();
}

}  // namespace

void save_decoder(const fs::path& folder, const Decoder& model, const SaveDecoderOptions& options) {
  check_merged("save_decoder", model);
  check_has_floats(model);
  OrderedJson json = decoder_config_json(model.config());
  json.update(tokens_json(options.tokens));
  json["torch_dtype"] = torch_dtype_name(options.dtype);
  if (options.nf4) json["quantization_config"] = nf4_config_json(options.dtype);
  uint64_t total = 0;
  const std::vector<StateDict> parts = shards(model, options, total);
  AtomicFolder files(folder);
  OrderedJson weight_map = OrderedJson::object();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name =
        parts.size() == 1 ? std::string(decoder_tensors_file)
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    write_safetensors(files.staged() / name, parts[i], {{"format", "pt"}},
                      options.nf4 ? std::nullopt : std::optional(options.dtype));
    for (const NamedTensor& t : parts[i]) weight_map[t.name] = name;
  }
  if (parts.size() > 1)
    write_json(files.staged() / decoder_index_file,
               {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}});
  write_json(files.staged() / "generation_config.json", tokens_json(options.tokens));
  write_json(files.staged() / "config.json", json);
  if (options.write_tokenizer) options.write_tokenizer(files.staged());
  files.commit([&](const std::string& name) {
    return is_of_old_model(name, options.write_tokenizer != nullptr);
  });
}

void save_decoder_gguf(const fs::path& file, const Decoder& model, GgufType type,
                       const GgufMetadata& more) {
  check_merged("save_decoder_gguf", model);
  GgufMetadata metadata = decoder_metadata(model.config(), type);
  metadata.insert(more.begin(), more.end());
  write_gguf(file, decoder_tensors(model, model.config(), type), metadata);
}

}  // namespace rw
