#include "io/models/adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "core/files/folder.h"
#include "io/formats/gguf.h"
#include "io/models/config_file.h"
#include "io/models/decoder/names.h"
#include "io/models/model.h"
#include "ops/operators.h"

namespace rw {

namespace {

namespace fs = std::filesystem;

const std::string adapter_config = "adapter_config.json";
const std::string adapter_tensors = "adapter_model.safetensors";
const std::string peft_prefix = "base_model.model.";
constexpr const char* adapter_reader = "load_adapter";
constexpr const char *suffix_a = ".lora_A.weight", *suffix_b = ".lora_B.weight",
                     *suffix_magnitude = ".lora_magnitude_vector";

// ---- the configuration --------------------------------------------------------------------------

// The settings for which there is a single value here: absent, null, or empty.
constexpr const char* unsupported_settings[] = {
    "modules_to_save",   "layers_to_transform", "layers_pattern",
    "layer_replication", "exclude_modules",     "trainable_token_indices",
    "lora_bias",         "target_parameters",   "megatron_config",
    "loftq_config",      "eva_config",          "corda_config",
    "use_qalora",        "arrow_config",        "use_bdlora",
    "kasa_config",       "velora_config",       "alora_invocation_tokens",
    "lora_ga_config",    "monteclora_config"};

bool is_absent(const nlohmann::json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

void check_adapter_settings(const nlohmann::json& json, const fs::path& file) {
  check<FileError>(json.value("peft_type", nlohmann::json()) == "LORA", adapter_reader,
                   "'{}' must have the peft_type LORA, got {}", file.string(),
                   describe_json(json.value("peft_type", nlohmann::json())));
  check_settings(adapter_reader, json, {{"bias", "none"}}, file);
  for (const char* key : unsupported_settings)
    check<FileError>(!json.contains(key) || is_absent(json[key]), adapter_reader,
                     "'{}' has {} {}, which is not supported", file.string(), key,
                     describe_json(json.value(key, nlohmann::json())));
  // These change the weights of the model; others are values at which training started.
  const nlohmann::json init = json.value("init_lora_weights", nlohmann::json(true));
  const std::string word = init.is_string() ? init.get<std::string>() : "";
  for (const char* changes : {"pissa", "olora", "corda", "loftq", "lora_ga"})
    check<FileError>(!word.starts_with(changes), adapter_reader,
                     "'{}' has init_lora_weights {:?}, for which the model's weights are changed; "
                     "PEFT's path_initial_model_for_weight_conversion converts such an adapter",
                     file.string(), word);
}

std::string text_in(const nlohmann::json& json, const char* key, const fs::path& file) {
  if (!json.contains(key) || json[key].is_null()) return "";
  check<FileError>(json[key].is_string(), adapter_reader, "{} of '{}' must be a text, got {}", key,
                   file.string(), describe_json(json[key]));
  return json[key].get<std::string>();
}

bool flag_in(const nlohmann::json& json, const char* key, const fs::path& file) {
  if (!json.contains(key) || json[key].is_null()) return false;
  check<FileError>(json[key].is_boolean(), adapter_reader,
                   "{} of '{}' must be true or false, got {}", key, file.string(),
                   describe_json(json[key]));
  return json[key].get<bool>();
}

// A list of names. Another form, an expression or none, is resolved by the names of the tensors.
std::vector<std::string> targets_in(const nlohmann::json& json, const fs::path& file) {
  std::vector<std::string> names;
  const nlohmann::json targets = json.value("target_modules", nlohmann::json());
  if (!targets.is_array()) return names;
  for (const nlohmann::json& name : targets) {
    check<FileError>(name.is_string(), adapter_reader,
                     "target_modules of '{}' must be names, got {}", file.string(),
                     describe_json(name));
    names.push_back(name.get<std::string>());
  }
  return names;
}

// Numbers by the names of layers, which PEFT takes for expressions.
template <class T>
std::vector<std::pair<std::string, T>> pattern_in(const nlohmann::json& json, const char* key,
                                                  T low, T high, const fs::path& file) {
  std::vector<std::pair<std::string, T>> found;
  const nlohmann::json pattern = json.value(key, nlohmann::json());
  if (pattern.is_null()) return found;
  const std::string where = fmt::format("{} of '{}'", key, file.string());
  check<FileError>(pattern.is_object(), adapter_reader, "{} must have numbers by names, got {}",
                   where, describe_json(pattern));
  for (const auto& [name, value] : pattern.items()) {
    const bool is_name = std::ranges::all_of(
        name, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; });
    check<FileError>(is_name && !name.empty() && name.front() != '.', adapter_reader,
                     "{} must have names of layers or their last parts, got {:?}; expressions are "
                     "not supported",
                     where, name);
    found.emplace_back(name, bounded_number<T>(value, low, high, where));
  }
  return found;
}

constexpr int64_t most_rank = 1 << 20;
constexpr double least_alpha = 1e-6, most_alpha = 1e6;

// FileError if two names of a pattern are one layer's: PEFT takes the first one in the file, and
// there is no order here.
template <class T>
void check_pattern(const std::string& layer, const std::vector<std::pair<std::string, T>>& pattern,
                   const std::string& file) {
  const std::pair<std::string, T>* first = nullptr;
  for (const auto& one : pattern) {
    if (!names_layer(one.first, layer)) continue;
    check<FileError>(!first || first->second == one.second, adapter_reader,
                     "the patterns of '{}' must have one name for a layer, got {:?} and {:?} for "
                     "{:?}",
                     file, first ? first->first : "", one.first, layer);
    first = &one;
  }
}

// The numbers that differ from the first adapter's, by names of layers.
template <class T>
nlohmann::ordered_json pattern_of(const std::vector<NamedLora>& adapters, T LoraOptions::*member) {
  nlohmann::ordered_json pattern = nlohmann::ordered_json::object();
  for (const auto& [name, adapter] : adapters)
    if (adapter->options().*member != adapters.front().adapter->options().*member)
      pattern[name] = adapter->options().*member;
  return pattern;
}

nlohmann::ordered_json adapter_json(const std::vector<NamedLora>& adapters, const AdapterInfo& info,
                                    const std::vector<std::string>& targets) {
  const LoraOptions& o = adapters.front().adapter->options();
  const auto text = [](const std::string& t) {
    return t.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(t);
  };
  return {{"peft_type", "LORA"},
          {"task_type", text(info.task_type)},
          {"base_model_name_or_path", text(info.base_model)},
          {"inference_mode", true},
          {"r", o.rank},
          {"lora_alpha", o.alpha},
          {"lora_dropout", o.dropout},
          {"target_modules", targets},
          {"bias", "none"},
          {"use_rslora", o.rank_stabilized},
          {"use_dora", o.dora},
          {"fan_in_fan_out", false},
          {"init_lora_weights", true},
          {"modules_to_save", nullptr},
          {"rank_pattern", pattern_of(adapters, &LoraOptions::rank)},
          {"alpha_pattern", pattern_of(adapters, &LoraOptions::alpha)}};
}

// ---- layers and tensors -------------------------------------------------------------------------

// Returns the names of layers or adapters.
template <class Named>
std::set<std::string> names_of(const std::vector<Named>& all) {
  std::set<std::string> names;
  for (const Named& one : all) names.insert(one.name);
  return names;
}

// Returns what PEFT finds these layers by: the last parts of their names, if no other layer has one
// of them, or else whole names.
std::vector<std::string> targets_of(const Module& model, const std::set<std::string>& layers) {
  std::set<std::string> last;
  for (const std::string& name : layers) last.insert(name.substr(name.rfind('.') + 1));
  std::vector<std::string> targets(last.begin(), last.end());
  if (names_of(lora_targets(model, targets)) != layers)
    targets.assign(layers.begin(), layers.end());
  return targets;
}

// The layer that a tensor of the file belongs to.
std::string layer_of(const std::string& tensor, const SafetensorsFile& file) {
  for (const char* suffix : {suffix_a, suffix_b, suffix_magnitude})
    if (tensor.starts_with(peft_prefix) && tensor.ends_with(suffix) &&
        tensor.size() > peft_prefix.size() + std::string_view(suffix).size())
      return tensor.substr(peft_prefix.size(),
                           tensor.size() - peft_prefix.size() - std::string_view(suffix).size());
  fail<FileError>(adapter_reader,
                  "'{}' must have tensors {}NAME{}, {} or {}, got {:?}, which is not supported",
                  file.path(), peft_prefix, suffix_a, suffix_b, suffix_magnitude, tensor);
}

// The layers that the file has tensors for. FileError if the model lacks one, or if one's A has
// another shape: the rank is believed only where the file has values for it.
std::set<std::string> layers_in(const SafetensorsFile& file, const Module& model,
                                const LoraOptions& options) {
  std::map<std::string, const Linear*> in_model;
  for (const auto& [name, layer] : linear_layers(model)) in_model[name] = layer;
  std::set<std::string> in_file;
  for (const auto& [tensor, stored] : file.tensors()) {
    const std::string name = layer_of(tensor, file);
    const auto layer = in_model.find(name);
    check<FileError>(layer != in_model.end(), adapter_reader,
                     "'{}' has {:?}, and the model has no linear layer {:?}: that part of the "
                     "adapter would do nothing",
                     file.path(), tensor, name);
    const Shape wanted = {options.of_layer(name).rank, layer->second->in_features()};
    check<FileError>(!tensor.ends_with(suffix_a) || stored.shape == wanted, adapter_reader,
                     "'{}' must have {:?} with the shape {}, got {}", file.path(), tensor, wanted,
                     stored.shape);
    if (!in_file.insert(name).second) continue;
    check_pattern(name, options.rank_pattern, file.path());
    check_pattern(name, options.alpha_pattern, file.path());
  }
  check<FileError>(!in_file.empty(), adapter_reader, "'{}' has no tensors", file.path());
  return in_file;
}

// Handles on the parameters of adapters, under their names in the file.
StateDict tensors_of(const std::vector<NamedLora>& adapters) {
  StateDict tensors;
  for (const auto& [name, adapter] : adapters) {
    const auto add = [&](const char* suffix, const Tensor& t) {
      if (t) tensors.push_back({peft_prefix + name + suffix, t.detach()});
    };
    add(suffix_a, adapter->A);
    add(suffix_b, adapter->B);
    add(suffix_magnitude, adapter->magnitude);
  }
  return tensors;
}

// The tensors of the file, which must be those of adapters of these layers and no others.
StateDict read_adapter(const SafetensorsFile& file, const std::vector<NamedLinear>& layers,
                       const LoraOptions& options) {
  StateDict tensors;
  for (const auto& [name, layer] : layers) {
    const int64_t rank = options.of_layer(name).rank;
    tensors.push_back({peft_prefix + name + suffix_a, empty({rank, layer->in_features()})});
    tensors.push_back({peft_prefix + name + suffix_b, empty({layer->out_features(), rank})});
    if (options.dora)
      tensors.push_back({peft_prefix + name + suffix_magnitude, empty({layer->out_features()})});
  }
  load_tensors(file, tensors);
  return tensors;
}

std::vector<NamedLora> adapters_to_save(const char* op, const Module& model) {
  std::vector<NamedLora> adapters = lora_adapters(model);
  check(!adapters.empty(), op, "the model must have adapters, got none");
  return adapters;
}

}  // namespace

void save_adapter(const fs::path& folder, const Module& model, const AdapterInfo& info) {
  const std::vector<NamedLora> adapters = adapters_to_save("save_adapter", model);
  const StateDict parameters = state_dict(model);
  for (const auto& [name, adapter] : adapters)
    check(std::ranges::count(parameters, name + suffix_a, &NamedTensor::name) == 1, "save_adapter",
          "PEFT has adapters of packed projections in another form, got '{}'", name);
  const nlohmann::ordered_json json =
      adapter_json(adapters, info, targets_of(model, names_of(adapters)));
  AtomicFolder files(folder);
  write_safetensors(files.staged() / adapter_tensors, tensors_of(adapters), {{"format", "pt"}},
                    DType::f32);
  AtomicFile out(files.staged() / adapter_config);
  out.write(json.dump(2) + "\n");
  out.commit();
  files.commit([](const std::string& name) { return name.starts_with("adapter_model."); });
}

std::pair<LoraOptions, AdapterInfo> read_adapter_config(const fs::path& folder) {
  const fs::path file = path_in(folder, adapter_config);
  const nlohmann::json json = read_config(adapter_reader, "PEFT", file);
  check_adapter_settings(json, file);
  const std::string where = file.string();
  LoraOptions options{
      .rank = json_number<int64_t>(json, "r", 1, most_rank, where),
      .alpha = json_number<double>(json, "lora_alpha", least_alpha, most_alpha, where),
      .rank_stabilized = flag_in(json, "use_rslora", file),
      .dora = flag_in(json, "use_dora", file),
      .target_modules = targets_in(json, file),
      .rank_pattern = pattern_in<int64_t>(json, "rank_pattern", 1, most_rank, file),
      .alpha_pattern = pattern_in<double>(json, "alpha_pattern", least_alpha, most_alpha, file)};
  if (json.contains("lora_dropout"))
    options.dropout = json_number<float>(json, "lora_dropout", 0, 0.999f, where);
  return {std::move(options),
          {.base_model = text_in(json, "base_model_name_or_path", file),
           .task_type = text_in(json, "task_type", file)}};
}

std::vector<NamedLora> load_adapter(const fs::path& folder, Module& model) {
  check(lora_adapters(model).empty(), adapter_reader,
        "the model must have no adapters yet; merge or remove them first");
  check_folder(folder);
  LoraOptions options = read_adapter_config(folder).first;
  const SafetensorsFile file(path_in(folder, adapter_tensors));
  const std::set<std::string> layers = layers_in(file, model, options);
  std::erase_if(options.target_modules, [&](const std::string& target) {
    return lora_targets(model, {target}).empty();  // as the names in other kinds of models
  });
  if (options.target_modules.empty()) options.target_modules.assign(layers.begin(), layers.end());
  const std::vector<NamedLinear> targets = lora_targets(model, options.target_modules);
  const StateDict values = read_adapter(file, targets, options);
  std::vector<NamedLora> adapters = add_lora(model, options);
  const StateDict parameters = tensors_of(adapters);
  for (size_t i = 0; i < values.size(); ++i) Tensor(parameters[i].tensor).copy_(values[i].tensor);
  return adapters;
}

void save_adapter_gguf(const fs::path& file, const Decoder& model) {
  const std::vector<NamedLora> adapters = adapters_to_save("save_adapter_gguf", model);
  check(!adapters.front().adapter->options().dora, "save_adapter_gguf",
        "GGUF files have no form of DoRA; merge the adapters into the model (merge_lora) and save "
        "that");
  const DecoderConfig& config = model.config();
  const NoGrad guard;
  // One alpha is of all; layers with another scale have it in B.
  const auto alpha_of = [](const Lora& adapter) {
    const LoraOptions& o = adapter.options();
    return static_cast<float>(o.scale() * static_cast<double>(o.rank));
  };
  const float alpha = alpha_of(*adapters.front().adapter);
  std::vector<GgufSource> sources;
  for (const auto& [name, adapter] : adapters) {
    const std::string weight = name + ".weight";
    const std::string stored = gguf_name(weight, config);
    const float own = alpha_of(*adapter);
    const Tensor b = own == alpha ? adapter->B.detach() : adapter->B.detach() * (own / alpha);
    sources.push_back({stored + ".lora_a", adapter->A.detach(), GgufType::f32});
    sources.push_back(
        {stored + ".lora_b", in_gguf_order(weight, b, config), GgufType::f32, b.shape()});
  }
  write_gguf(file, sources,
             {{"general.architecture", gguf_architecture(config)},
              {"general.type", std::string("adapter")},
              {"adapter.type", std::string("lora")},
              {"adapter.lora.alpha", alpha}});
}

}  // namespace rw
