#include "io/bert.h"

#include <nlohmann/json.hpp>

namespace rw {

namespace {

using Json = nlohmann::ordered_json;

// Calls visit(key, member) for all that config.json and BertConfig share.
template <class Config, class F>
void for_each_key(Config& c, const F& visit) {
  visit("vocab_size", c.vocab_size);
  visit("hidden_size", c.hidden_size);
  visit("num_hidden_layers", c.num_hidden_layers);
  visit("num_attention_heads", c.num_attention_heads);
  visit("intermediate_size", c.intermediate_size);
  visit("max_position_embeddings", c.max_position_embeddings);
  visit("type_vocab_size", c.type_vocab_size);
  visit("hidden_dropout_prob", c.hidden_dropout_prob);
  visit("attention_probs_dropout_prob", c.attention_probs_dropout_prob);
  visit("layer_norm_eps", c.layer_norm_eps);
  visit("initializer_range", c.initializer_range);
}

// Settings that the files may name but this BERT has one value for.
const Json fixed_settings = {
    {"model_type", "bert"}, {"hidden_act", "gelu"},        {"position_embedding_type", "absolute"},
    {"is_decoder", false},  {"tie_word_embeddings", true}, {"pad_token_id", 0}};

bool contains(const SafetensorsFile& file, const std::string& name) {
  return file.tensors().contains(name);
}

// The name that a tensor has in this file.
std::string name_in(const SafetensorsFile& file, const std::string& name) {
  std::vector<std::string> names = {name};
  if (name.starts_with("bert.")) names.push_back(name.substr(5));
  for (const std::string& candidate : std::vector(names)) {
    const StateDict early = renamed({{candidate, {}}}, {{"LayerNorm.weight", "LayerNorm.gamma"},
                                                        {"LayerNorm.bias", "LayerNorm.beta"}});
    names.push_back(early[0].name);
  }
  for (const std::string& candidate : names)
    if (contains(file, candidate)) return candidate;
  return name;
}

bool is_encoder(const std::string& name) {
  return name.find("embeddings.") != std::string::npos ||
         name.find("encoder.") != std::string::npos;
}

}  // namespace

BertConfig read_bert_config(const std::filesystem::path& file) {
  const MappedFile text(file);
  BertConfig config;
  try {
    const Json json = Json::parse(text.text());
    for (const auto& [key, wanted] : fixed_settings.items()) {
      const Json value = json.value(key, wanted);
      check<FileError>(value == wanted, "read_bert_config", "'{}' has {} {}; only {} is supported",
                       file.string(), key, value.dump(), wanted.dump());
    }
    for_each_key(config, [&](const char* key, auto& value) {
      if (json.contains(key)) json.at(key).get_to(value);
    });
  } catch (const Json::exception& error) {
    fail<FileError>("read_bert_config", "'{}' is not a BERT configuration: {}", file.string(),
                    error.what());
  }
  return config;
}

void write_bert_config(const std::filesystem::path& file, const BertConfig& config,
                       const std::string& architecture) {
  Json json = {{"architectures", {architecture}}};
  json.update(fixed_settings);
  for_each_key(config, [&](const char* key, const auto& value) { json[key] = value; });
  AtomicFile out(file);
  out.write(json.dump(2) + "\n");
  out.commit();
}

LoadResult load_bert(const std::filesystem::path& path, Module& model) {
  const SafetensorsFile file(path);
  StateDict tensors;
  LoadResult result;
  for (NamedTensor& t : torch_state_dict(model)) {
    const std::string name = name_in(file, t.name);
    if (contains(file, name)) {
      tensors.push_back({name, t.tensor});
      continue;
    }
    check<FileError>(!is_encoder(t.name), "load_bert", "'{}' has no {}", path.string(), t.name);
    result.missing.push_back(t.name);
  }
  result.unexpected = load_tensors(file, tensors, false).unexpected;
  return result;
}

}  // namespace rw
