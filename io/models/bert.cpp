#include "io/models/bert.h"

#include "io/models/config_file.h"

namespace rw {

namespace {

using Json = nlohmann::ordered_json;

// Calls visit(key, member, lowest, highest) for everything that config.json and BertConfig share.
// The highest values are well above any BERT, so that a broken file is an error and not a program
// that runs for hours.
template <class Config, class F>
void for_each_bert_key(Config& c, const F& visit) {
  visit("vocab_size", c.vocab_size, 1, 1 << 24);
  visit("hidden_size", c.hidden_size, 1, 1 << 16);
  visit("num_hidden_layers", c.num_hidden_layers, 1, 10000);
  visit("num_attention_heads", c.num_attention_heads, 1, 1 << 16);
  visit("intermediate_size", c.intermediate_size, 1, 1 << 20);
  visit("max_position_embeddings", c.max_position_embeddings, 1, 1 << 24);
  visit("type_vocab_size", c.type_vocab_size, 1, 1 << 16);
  visit("hidden_dropout_prob", c.hidden_dropout_prob, 0, 0.999);
  visit("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 0, 0.999);
  visit("layer_norm_eps", c.layer_norm_eps, 0, 1);
  visit("initializer_range", c.initializer_range, 0, 100);
}

// Settings that files may name but for which this BERT has a single value.
const Json fixed_bert_settings = {
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
  const nlohmann::json json = read_config("read_bert_config", "BERT", file);
  check_settings("read_bert_config", json, fixed_bert_settings, file);
  BertConfig config;
  for_each_bert_key(config, [&](const char* key, auto& value, auto low, auto high) {
    using T = std::remove_reference_t<decltype(value)>;
    if (json.contains(key)) value = json_number<T>(json, key, low, high, file.string());
  });
  check<FileError>(
      config.hidden_size % config.num_attention_heads == 0, "read_bert_config",
      "'{}' must have a hidden_size that its num_attention_heads divide, got {} and {}",
      file.string(), config.hidden_size, config.num_attention_heads);
  return config;
}

void write_bert_config(const std::filesystem::path& file, const BertConfig& config,
                       const std::string& architecture, std::span<const std::string> class_names) {
  Json json = {{"architectures", {architecture}}};
  json.update(fixed_bert_settings);
  for (size_t i = 0; i < class_names.size(); ++i) {
    json["id2label"][std::to_string(i)] = class_names[i];
    json["label2id"][class_names[i]] = i;
  }
  for_each_bert_key(config,
                    [&](const char* key, const auto& value, auto...) { json[key] = value; });
  AtomicFile out(file);
  out.write(json.dump(2) + "\n");
  out.commit();
}

std::vector<std::string> bert_class_names(const std::filesystem::path& config_file,
                                          const std::filesystem::path& weights) {
  const SafetensorsFile file(weights);
  const auto found = file.tensors().find("classifier.weight");
  check<FileError>(found != file.tensors().end() && found->second.shape.rank() == 2 &&
                       found->second.shape[1] == read_bert_config(config_file).hidden_size,
                   "bert_class_names",
                   "'{}' must hold a classifier, a classifier.weight; make one by fine-tuning",
                   weights.string());
  const auto classes = static_cast<size_t>(found->second.shape[0]);
  std::vector<std::string> names;
  for (size_t i = 0; i < classes; ++i) names.push_back(fmt::format("LABEL_{}", i));

  const nlohmann::json json = read_config("read_bert_config", "BERT", config_file);
  if (!json.contains("id2label")) return names;
  const nlohmann::json& labels = json["id2label"];
  check<FileError>(labels.is_object() && labels.size() == classes, "bert_class_names",
                   "\"id2label\" of '{}' must name the {} classes of '{}', got {}",
                   config_file.string(), classes, weights.string(), describe_json(labels));
  for (size_t i = 0; i < classes; ++i) {
    const auto label = labels.find(std::to_string(i));
    check<FileError>(label != labels.end() && label->is_string(), "bert_class_names",
                     "\"id2label\" of '{}' must have a name for each of \"0\" to \"{}\", got none "
                     "for \"{}\"",
                     config_file.string(), classes - 1, i);
    names[i] = *label;
  }
  return names;
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
