#include "io/models/decoder/json.h"

#include <algorithm>
#include <cmath>

#include "io/models/config_file.h"

namespace rw {

namespace {

using nlohmann::json;

constexpr const char* me = "read_decoder_config";

// The defaults of the classes of transformers 5.12, without those that all of them share.
DecoderConfig class_defaults(const std::string& model_type, const std::filesystem::path& file) {
  DecoderConfig c{.model_type = model_type,
                  .hidden_size = 4096,
                  .intermediate_size = 11008,
                  .num_hidden_layers = 32,
                  .num_attention_heads = 32,
                  .num_key_value_heads = 32};
  if (model_type == "mistral") {
    c.intermediate_size = 14336;
    c.num_key_value_heads = 8;
    c.max_position_embeddings = 131072;
    c.sliding_window = 4096;
  } else if (model_type == "qwen2" || model_type == "qwen3") {
    c.vocab_size = 151936;
    c.intermediate_size = 22016;
    c.max_position_embeddings = 32768;
    c.sliding_window = 4096;
    c.attention_bias = model_type == "qwen2";
    c.head_dim = model_type == "qwen3" ? 128 : 0;
  } else if (model_type == "gemma") {
    c.vocab_size = 256000;
    c.hidden_size = 3072;
    c.intermediate_size = 24576;
    c.num_hidden_layers = 28;
    c.num_attention_heads = c.num_key_value_heads = 16;
    c.max_position_embeddings = 8192;
  } else if (model_type == "gemma3_text") {
    c.vocab_size = 262208;
    c.hidden_size = 2304;
    c.intermediate_size = 9216;
    c.num_hidden_layers = 26;
    c.num_attention_heads = 8;
    c.num_key_value_heads = 4;
    c.max_position_embeddings = 131072;
    c.rope_theta = 1e6;
    c.sliding_window = 4096;
    c.query_pre_attn_scalar = 256;
  } else {
    check<FileError>(model_type == "llama", me,
                     "'{}' must have the model_type llama, mistral, qwen2, qwen3, gemma or "
                     "gemma3_text, got {:?}",
                     file.string(), model_type);
  }
  if (c.is_gemma()) {
    c.head_dim = 256;
    c.hidden_act = "gelu_pytorch_tanh";
    c.tie_word_embeddings = true;
  }
  return c;
}

// Calls visit(key, member, lowest, highest) for numbers that all classes have. The highest values
// are well above any model, so that a broken file is an error and not a program that runs for
// hours.
template <class Config, class F>
void for_each_number(Config& c, const F& visit) {
  visit("vocab_size", c.vocab_size, 1, 1 << 24);
  visit("hidden_size", c.hidden_size, 1, 1 << 17);
  visit("intermediate_size", c.intermediate_size, 1, 1 << 20);
  visit("num_hidden_layers", c.num_hidden_layers, 1, 10000);
  visit("num_attention_heads", c.num_attention_heads, 1, 1 << 16);
  visit("num_key_value_heads", c.num_key_value_heads, 1, 1 << 16);
  visit("head_dim", c.head_dim, 1, 1 << 16);
  visit("max_position_embeddings", c.max_position_embeddings, 1, 1 << 30);
  visit("rms_norm_eps", c.rms_norm_eps, 0, 1);
  visit("initializer_range", c.initializer_range, 0, 100);
}

// Settings that files may name but for which Decoder has a single value.
const nlohmann::ordered_json fixed_decoder_settings = {{"attention_dropout", 0},
                                                       {"attn_logit_softcapping", nullptr},
                                                       {"final_logit_softcapping", nullptr},
                                                       {"is_encoder_decoder", false},
                                                       {"partial_rotary_factor", 1}};

// Whether an object has a value that is not null.
bool has(const json& object, const std::string& key) {
  return object.contains(key) && !object[key].is_null();
}

// Replaces `value` by that of a key, if it is there.
void take(const json& object, const std::string& key, double& value, double low, double high,
          const std::filesystem::path& file) {
  if (has(object, key)) value = json_number<double>(object, key, low, high, file.string());
}
// A list has a number for each layer, which must be the same in all.
void take(const json& object, const std::string& key, int64_t& value, int64_t low, int64_t high,
          const std::filesystem::path& file) {
  if (!has(object, key)) return;
  const json& given = object[key];
  const std::string what = fmt::format("{:?} of '{}'", key, file.string());
  const bool is_list = given.is_array() && !given.empty();
  value = bounded_number<int64_t>(is_list ? given[0] : given, low, high, what);
  for (size_t layer = 1; is_list && layer < given.size(); ++layer)
    check<FileError>(given[layer] == given[0], me,
                     "{} must be the same in all layers, got {} and {}; models with other layers "
                     "are not supported",
                     what, describe_json(given[0]), describe_json(given[layer]));
}
void take(const json& object, const std::string& key, bool& value,
          const std::filesystem::path& file) {
  if (!has(object, key)) return;
  check<FileError>(object[key].is_boolean(), me, "{} of '{}' must be true or false, got {}", key,
                   file.string(), describe_json(object[key]));
  value = object[key].get<bool>();
}
void take(const json& object, const std::string& key, std::string& value,
          const std::filesystem::path& file) {
  if (!has(object, key)) return;
  check<FileError>(object[key].is_string(), me, "{} of '{}' must be a text, got {}", key,
                   file.string(), describe_json(object[key]));
  value = object[key].get<std::string>();
}

// The member `key` if it is an object, else an empty one. FileError unless it is null or missing.
json object_at(const json& parent, const std::string& key, const std::filesystem::path& file) {
  if (!has(parent, key)) return json::object();
  check<FileError>(parent[key].is_object(), me, "{} of '{}' must be an object, got {}", key,
                   file.string(), describe_json(parent[key]));
  return parent[key];
}

// One object of rotary embeddings, in the spelling of transformers 4 (`type`) or 5 (`rope_type`).
RopeScaling parse_scaling(const json& object, const json& config,
                          const std::filesystem::path& file) {
  RopeScaling s;
  take(object, "type", s.type, file);
  take(object, "rope_type", s.type, file);
  if (s.type == "default") s.type.clear();
  check_settings(me, object, {{"partial_rotary_factor", 1}}, file);
  if (s.type.empty()) return {};
  check<FileError>(s.type == "linear" || s.type == "llama3" || s.type == "yarn", me,
                   "'{}' must have rotary embeddings of type linear, llama3 or yarn, got {:?}",
                   file.string(), s.type);
  check<FileError>(has(object, "factor"), me, "'{}': {} rotary embeddings need a factor",
                   file.string(), s.type);
  take(object, "factor", s.factor, 1e-6, 1e6, file);
  if (s.type == "linear") return s;
  for (const json* place : {&object, &config})  // the later one counts
    take(*place, "original_max_position_embeddings", s.original_max_position_embeddings, 1, 1 << 30,
         file);
  if (s.type == "llama3") {
    take(object, "low_freq_factor", s.low_freq_factor, 1e-6, 1e6, file);
    take(object, "high_freq_factor", s.high_freq_factor, 1e-6, 1e6, file);
    return s;
  }
  check_settings(me, object, {{"truncate", true}, {"mscale", nullptr}, {"mscale_all_dim", nullptr}},
                 file);
  take(object, "beta_fast", s.beta_fast, 1e-6, 1e6, file);
  take(object, "beta_slow", s.beta_slow, 1e-6, 1e6, file);
  take(object, "attention_factor", s.attention_factor, 1e-6, 1e6, file);
  return s;
}

void parse_rotary(const json& config, DecoderConfig& c, const std::filesystem::path& file) {
  take(config, "rope_theta", c.rope_theta, 1, 1e12, file);
  take(config, "rope_local_base_freq", c.rope_local_base_freq, 1, 1e12, file);
  json object = object_at(config, "rope_parameters", file);
  if (object.contains("full_attention") || object.contains("sliding_attention")) {
    check<FileError>(c.model_type == "gemma3_text", me,
                     "'{}' has rope_parameters for each type of layer; only gemma3_text can",
                     file.string());
    const json local = object_at(object, "sliding_attention", file);
    check<FileError>(parse_scaling(local, config, file).type.empty(), me,
                     "'{}' must have plain rotary embeddings in layers with a window",
                     file.string());
    take(local, "rope_theta", c.rope_local_base_freq, 1, 1e12, file);
    object = object_at(object, "full_attention", file);
  }
  if (has(config, "rope_scaling")) object = object_at(config, "rope_scaling", file);
  take(object, "rope_theta", c.rope_theta, 1, 1e12, file);
  c.rope_scaling = parse_scaling(object, config, file);
}

// Whether a layer has a window, if the file says nothing about each.
bool has_window_by_default(const json& config, const std::string& model_type, int64_t layer,
                           const std::filesystem::path& file) {
  int64_t after = 28, period = 6;
  take(config, "max_window_layers", after, 0, INT32_MAX, file);
  take(config, "sliding_window_pattern", period, 1, INT32_MAX, file);
  return model_type == "gemma3_text" ? (layer + 1) % period != 0 : layer >= after;
}

void parse_windows(const json& config, DecoderConfig& c, const std::filesystem::path& file) {
  if (c.sliding_window == 0) return;  // the class has none
  if (config.contains("sliding_window") && config["sliding_window"].is_null()) c.sliding_window = 0;
  take(config, "sliding_window", c.sliding_window, 1, INT32_MAX, file);
  if (c.model_type == "mistral") return;
  bool is_used = c.model_type == "gemma3_text";
  take(config, "use_sliding_window", is_used, file);
  if (!is_used) c.sliding_window = 0;
  if (c.sliding_window == 0) return;
  const bool has_types = has(config, "layer_types");
  const json types = has_types ? config["layer_types"] : json::array();
  check<FileError>(!has_types || (types.is_array() && std::ssize(types) == c.num_hidden_layers), me,
                   "layer_types of '{}' must be a list for {} layers, got {}", file.string(),
                   c.num_hidden_layers, describe_json(types));
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (!has_types) {
      c.slides.push_back(has_window_by_default(config, c.model_type, layer, file));
      continue;
    }
    const json& type = types[static_cast<size_t>(layer)];
    check<FileError>(type == "full_attention" || type == "sliding_attention", me,
                     "layer_types of '{}' must be full_attention or sliding_attention, got {}",
                     file.string(), describe_json(type));
    c.slides.push_back(type == "sliding_attention");
  }
}

// Whether the class has a choice.
bool has_attention_bias(const std::string& model_type) {
  return model_type != "qwen2" && model_type != "mistral";
}

const char* activation_key(const DecoderConfig& c) {
  return c.model_type == "gemma3_text" ? "hidden_activation" : "hidden_act";
}

// The word of Decoder for an activation: transformers has several for the same function
// (activations.py), and means the tanh form by the first Gemma's "gelu".
std::string known_activation(const DecoderConfig& c) {
  const std::string& word = c.hidden_act;
  if (word == "swish") return "silu";
  if (word == "gelu_new" || word == "gelu_fast" || word == "gelu_python_tanh" ||
      (word == "gelu" && c.model_type == "gemma"))
    return "gelu_pytorch_tanh";
  return word;
}

// The same model where every choice has one spelling.
DecoderConfig normal(DecoderConfig c) {
  c.head_dim = c.heads_dim();
  std::vector<bool> slides;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    slides.push_back(c.has_window(layer));
  if (std::ranges::count(slides, true) == 0) c.sliding_window = 0;
  c.slides = std::ranges::count(slides, false) == 0 || c.sliding_window == 0 ? std::vector<bool>{}
                                                                             : slides;
  if (c.model_type != "gemma3_text") c.rope_local_base_freq = DecoderConfig().rope_local_base_freq;
  if (c.query_pre_attn_scalar == 0) c.query_pre_attn_scalar = static_cast<double>(c.head_dim);
  RopeScaling& s = c.rope_scaling;
  if (s.type.empty()) s = {};
  if (s.type == "linear") s = {.type = "linear", .factor = s.factor};
  if (s.type != "linear" && !s.type.empty() && s.original_max_position_embeddings == 0)
    s.original_max_position_embeddings = c.max_position_embeddings;
  return c;
}

nlohmann::ordered_json rotary_json(const RopeScaling& s) {
  if (s.type.empty()) return nullptr;
  nlohmann::ordered_json object = {{"rope_type", s.type}, {"factor", s.factor}};
  if (s.type != "linear")
    object["original_max_position_embeddings"] = s.original_max_position_embeddings;
  if (s.type == "llama3") {
    object["low_freq_factor"] = s.low_freq_factor;
    object["high_freq_factor"] = s.high_freq_factor;
  } else if (s.type == "yarn") {
    if (s.beta_fast != RopeScaling().beta_fast) object["beta_fast"] = s.beta_fast;
    if (s.beta_slow != RopeScaling().beta_slow) object["beta_slow"] = s.beta_slow;
    if (s.attention_factor > 0) object["attention_factor"] = s.attention_factor;
  }
  return object;
}

void add_windows(nlohmann::ordered_json& json, const DecoderConfig& c) {
  if (c.model_type == "llama" || c.model_type == "gemma") return;
  const bool has_windows = c.sliding_window > 0;
  json["sliding_window"] = has_windows ? nlohmann::ordered_json(c.sliding_window) : nullptr;
  if (c.model_type == "mistral") return;
  if (c.model_type != "gemma3_text") json["use_sliding_window"] = has_windows;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    json["layer_types"].push_back(c.has_window(layer) ? "sliding_attention" : "full_attention");
}

// The class of a causal language model.
std::string architecture_of(const std::string& model_type) {
  if (model_type == "gemma3_text") return "Gemma3ForCausalLM";
  std::string name = model_type;
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name + "ForCausalLM";
}

}  // namespace

const char* torch_dtype_name(DType dtype) {
  return dtype == DType::f16 ? "float16" : dtype == DType::bf16 ? "bfloat16" : "float32";
}

DecoderConfig parse_decoder_config(const json& json, const std::filesystem::path& file) {
  std::string model_type = "none";
  take(json, "model_type", model_type, file);
  DecoderConfig c = class_defaults(model_type, file);
  check_settings(me, json, fixed_decoder_settings, file);
  if (has(json, "quantization_config")) {
    const nlohmann::json& how = json["quantization_config"];
    check<FileError>(how.is_object() && how.value("load_in_4bit", nlohmann::json()) == true, me,
                     "'{}' has a quantization_config; of those, bitsandbytes' with load_in_4bit is "
                     "supported",
                     file.string());
  }
  bool both_ways = false;
  take(json, "use_bidirectional_attention", both_ways, file);
  check<FileError>(!both_ways, me, "'{}' must have causal attention", file.string());
  // Null is a default that depends on other values.
  if (json.contains("num_key_value_heads") && json["num_key_value_heads"].is_null())
    c.num_key_value_heads = 0;
  if (json.contains("head_dim") && json["head_dim"].is_null()) c.head_dim = 0;
  const bool is_llama = c.model_type == "llama";
  if (is_llama && !json.contains("num_key_value_heads")) c.num_key_value_heads = 0;
  for_each_number(c, [&](const char* key, auto& value, auto low, auto high) {
    take(json, key, value, low, high, file);
  });
  if (c.num_key_value_heads == 0) c.num_key_value_heads = c.num_attention_heads;
  take(json, "tie_word_embeddings", c.tie_word_embeddings, file);
  if (has_attention_bias(c.model_type)) take(json, "attention_bias", c.attention_bias, file);
  if (is_llama) take(json, "mlp_bias", c.mlp_bias, file);
  take(json, activation_key(c), c.hidden_act, file);
  c.hidden_act = known_activation(c);
  if (c.model_type == "gemma3_text")
    take(json, "query_pre_attn_scalar", c.query_pre_attn_scalar, 1e-6, 1e6, file);
  parse_rotary(json, c, file);
  parse_windows(json, c, file);
  try {
    c.check();
  } catch (const ValueError& error) {
    fail<FileError>(me, "'{}' is not a model that can be: {}", file.string(), error.what());
  }
  return c;
}

nlohmann::ordered_json decoder_config_json(const DecoderConfig& given) {
  given.check();
  const DecoderConfig c = normal(given);
  nlohmann::ordered_json json = {{"architectures", {architecture_of(c.model_type)}},
                                 {"model_type", c.model_type}};
  for_each_number(c, [&](const char* key, const auto& value, auto...) { json[key] = value; });
  json[activation_key(c)] = c.hidden_act;
  if (has_attention_bias(c.model_type)) json["attention_bias"] = c.attention_bias;
  json["attention_dropout"] = 0.0;
  if (c.model_type == "llama") json["mlp_bias"] = c.mlp_bias;
  json["rope_theta"] = c.rope_theta;
  json["rope_scaling"] = rotary_json(c.rope_scaling);
  if (c.model_type == "gemma3_text") {
    json["rope_local_base_freq"] = c.rope_local_base_freq;
    json["query_pre_attn_scalar"] = c.query_pre_attn_scalar;
    // The class wants an integer.
    if (const auto whole = std::llround(c.query_pre_attn_scalar);
        static_cast<double>(whole) == c.query_pre_attn_scalar)
      json["query_pre_attn_scalar"] = whole;
  }
  add_windows(json, c);
  json["tie_word_embeddings"] = c.tie_word_embeddings;
  const DecoderConfig again =
      parse_decoder_config(nlohmann::json::parse(json.dump()), "config.json");
  check<ValueError>(normal(again) == c, "decoder_config_json",
                    "the class of {} in transformers must have all that the model has; it has no "
                    "such biases, windows or scores",
                    c.model_type);
  return json;
}

}  // namespace rw
