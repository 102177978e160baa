#include "io/models/decoder/metadata.h"

#include <cmath>
#include <numbers>

#include "io/models/decoder/names.h"

namespace rw {

using namespace detail;

namespace {

constexpr const char* gguf_reader = "read_decoder_config";

// ---- rotary embeddings --------------------------------------------------------------------------

// Llama 3's parameters from what divides each frequency. Between the wavelengths that are left
// alone and those that are divided by `factor`, 1 / stretch is linear in the frequency, with two
// coefficients; low_freq_factor is 1, and of a single point there high_freq_factor is 4, as in all
// that are published.
RopeScaling find_llama3(const std::vector<float>& stretch, const std::vector<float>& frequencies) {
  const auto rounded = [](double x) { return std::round(1000 * x) / 1000; };
  RopeScaling s{.type = "llama3",
                .factor = rounded(stretch.back()),
                .original_max_position_embeddings = 8192};
  struct Point {
    double turns, share;  // per token, and of the unchanged frequency
  };
  std::vector<Point> ramp;
  for (size_t i = 0; i < stretch.size(); ++i)
    if (stretch[i] > 1.0001 && stretch[i] < 0.9999 * s.factor)
      ramp.push_back({frequencies[i] / (2 * std::numbers::pi),
                      (1 / stretch[i] - 1 / s.factor) / (1 - 1 / s.factor)});
  double original = 8192;
  if (ramp.size() > 1) {
    const auto& [turns, share] = ramp.front();
    const double slope = (share - ramp.back().share) / (turns - ramp.back().turns);
    const double at_zero = share - slope * turns;  // -low / (high - low)
    s.high_freq_factor = rounded(1 - 1 / at_zero);
    original = -slope / at_zero;
  } else if (ramp.size() == 1) {
    original = (1 + 3 * ramp.front().share) / ramp.front().turns;
  }
  if (original >= 1 && original <= 1 << 30)
    s.original_max_position_embeddings = std::llround(original);
  return s;
}

RopeScaling parse_llama3(const GgufFile& file, DecoderConfig c) {
  const GgufTensor& stored = file.tensors().find(rope_freqs)->second;
  check<FileError>(stored.type->name == "F32" && stored.shape == Shape{c.heads_dim() / 2},
                   gguf_reader, "'{}': {} must be F32 of the shape ({}), got {} {}", file.path(),
                   rope_freqs, c.heads_dim() / 2, stored.type->name, stored.shape);
  std::vector<float> stretch(static_cast<size_t>(stored.shape[0]));
  InputFile(file.path()).read(stored.offset, std::as_writable_bytes(std::span(stretch)));
  c.rope_scaling = {};
  c.rope_scaling = find_llama3(stretch, c.rotary().frequencies);
  const RopeScaling& s = c.rope_scaling;
  bool fits = s.factor >= 1 && s.factor <= 1e6 && s.high_freq_factor > s.low_freq_factor;
  const std::vector<float> again = fits ? rope_stretches(c) : stretch;
  for (size_t i = 0; i < again.size(); ++i) fits &= std::abs(again[i] / stretch[i] - 1) < 1e-4;
  check<FileError>(fits, gguf_reader,
                   "'{}': {} must be the factors of Llama 3's rotary embeddings; others are not "
                   "supported",
                   file.path(), rope_freqs);
  return s;
}

// YaRN's factor of cos and sin; llama.cpp has a further one.
double yarn_scale(double factor) {
  return factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}

RopeScaling parse_rope_scaling(const GgufFile& file, const DecoderConfig& c,
                               const std::string& prefix) {
  if (file.tensors().contains(rope_freqs)) return parse_llama3(file, c);
  const std::string at = prefix + "rope.scaling.";
  const std::string old = prefix + "rope.scale_linear";  // the key of early files
  if (file.has(old)) return {.type = "linear", .factor = file.number(old, 1e-6, 1e6)};
  RopeScaling s;
  if (file.has(at + "type")) s.type = file.text(at + "type");
  if (s.type == "none") s.type.clear();
  if (s.type.empty()) return {};
  check<FileError>(s.type == "linear" || s.type == "yarn", gguf_reader,
                   "'{}' must have rotary embeddings of type linear or yarn, got {:?}", file.path(),
                   s.type);
  s.factor = file.number(at + "factor", 1e-6, 1e6);
  if (s.type == "linear") return s;
  const auto take = [&](const char* key, double& value) {
    if (file.has(at + key)) value = file.number(at + key, 1e-6, 1e6);
  };
  s.original_max_position_embeddings = file.integer(at + "original_context_length", 1, 1 << 30);
  take("yarn_beta_fast", s.beta_fast);
  take("yarn_beta_slow", s.beta_slow);
  if (double factor = 0; take("attn_factor", factor), factor > 0)
    s.attention_factor = factor * yarn_scale(s.factor);
  take("yarn_attn_factor", s.attention_factor);
  return s;
}

void add_rope_scaling(GgufMetadata& metadata, const DecoderConfig& c, const std::string& prefix) {
  const RopeScaling& s = c.rope_scaling;
  if (s.type.empty() || s.type == "llama3") return;
  const std::string at = prefix + "rope.scaling.";
  const auto add = [&](const char* key, double value) {
    metadata[at + key] = static_cast<float>(value);
  };
  metadata[at + "type"] = s.type;
  add("factor", s.factor);
  if (s.type == "linear") return;
  metadata[at + "original_context_length"] = static_cast<uint32_t>(
      s.original_max_position_embeddings > 0 ? s.original_max_position_embeddings
                                             : c.max_position_embeddings);
  add("yarn_beta_fast", s.beta_fast);
  add("yarn_beta_slow", s.beta_slow);
  if (s.attention_factor == 0) return;
  // The converter of llama.cpp writes the first, and llama.cpp reads the second.
  add("yarn_attn_factor", s.attention_factor);
  add("attn_factor", s.attention_factor / yarn_scale(s.factor));
}

// ---- the other metadata -------------------------------------------------------------------------

// llama.cpp's scores of Gemma 3 are divided by the root of this, which is another number only in
// its model of 27e9 parameters.
double score_scalar(const DecoderConfig& c) {
  return static_cast<double>(c.num_hidden_layers == 62 ? c.hidden_size / c.num_attention_heads
                                                       : c.heads_dim());
}

// Five of six layers have a window: Gemma 3's pattern, if a file does not say another.
std::vector<bool> every_sixth_full(int64_t layers, int64_t period = 6) {
  std::vector<bool> slides;
  for (int64_t layer = 0; layer < layers; ++layer) slides.push_back((layer + 1) % period != 0);
  return slides;
}

void parse_windows(const GgufFile& file, DecoderConfig& c, const std::string& prefix) {
  const std::string key = prefix + "attention.sliding_window", pattern = key + "_pattern";
  if (!file.has(key)) return;
  c.sliding_window = file.integer(key, 0, INT32_MAX);
  if (c.sliding_window == 0) return;
  if (c.model_type == "llama") c.model_type = "mistral";
  if (c.model_type == "gemma3_text") c.slides = every_sixth_full(c.num_hidden_layers);
  if (!file.has(pattern)) return;
  if (std::holds_alternative<GgufList>(file.metadata().find(pattern)->second))
    c.slides = file.list<bool>(pattern);
  else
    c.slides = every_sixth_full(c.num_hidden_layers, file.integer(pattern, 1, INT32_MAX));
}

void check_supported(const GgufFile& file, const DecoderConfig& c, const std::string& prefix) {
  for (const char* key : {"expert_count", "attn_logit_softcapping", "final_logit_softcapping"})
    check<FileError>(!file.has(prefix + key) || file.number(prefix + key, 0, 1e9) == 0, gguf_reader,
                     "'{}' has {}{}, which is not supported", file.path(), prefix, key);
  check<FileError>(!file.has("split.count") || file.integer("split.count", 0, UINT16_MAX) < 2,
                   gguf_reader,
                   "'{}' must be a whole model, got a part of one; llama-gguf-split --merge joins "
                   "parts",
                   file.path());
  for (const char* key : {"attention.value_length", "rope.dimension_count"})
    if (file.has(prefix + key))
      check<FileError>(file.integer(prefix + key, 1, 1 << 16) == c.heads_dim(), gguf_reader,
                       "'{}': {}{} must be the size of heads, {}, got {}", file.path(), prefix, key,
                       c.heads_dim(), file.integer(prefix + key, 1, 1 << 16));
}

// A number of all layers: files may have a list with one for each.
int64_t number_of_layers(const GgufFile& file, const std::string& key, int64_t high,
                         int64_t layers) {
  const std::vector<int64_t> numbers = file.integers(key);
  if (std::ssize(numbers) != layers) return file.integer(key, 1, high);
  for (const int64_t number : numbers)
    check<FileError>(number == numbers[0] && number >= 1 && number <= high, gguf_reader,
                     "'{}': {} must be the same in all layers, in [1, {}], got {} and {}; models "
                     "whose layers differ are not supported",
                     file.path(), key, high, numbers[0], number);
  return numbers[0];
}

// llama.cpp's number for a file whose matrices are of this type.
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q4_0:
      return 2;
    case GgufType::q4_1:
      return 3;
    case GgufType::q8_0:
      return 7;
    case GgufType::q5_0:
      return 8;
    case GgufType::q5_1:
      return 9;
    case GgufType::q4_k:
      return 14;
    case GgufType::q5_k:
      return 16;
    case GgufType::q6_k:
      return 18;
    case GgufType::bf16:
      return 32;
  }
  return 0;
}

}  // namespace

std::vector<float> detail::rope_stretches(const DecoderConfig& c) {
  DecoderConfig plain = c;
  plain.rope_scaling = {};
  std::vector<float> result = plain.rotary().frequencies;
  const std::vector<float> scaled = c.rotary().frequencies;
  for (size_t i = 0; i < result.size(); ++i) result[i] /= scaled[i];
  return result;
}

DecoderConfig parse_decoder_metadata(const GgufFile& file) {
  const std::string& architecture = file.text("general.architecture");
  DecoderConfig c;
  c.model_type = architecture == "gemma3" ? "gemma3_text" : architecture;
  check<FileError>(architecture == "llama" || architecture == "qwen2" || architecture == "qwen3" ||
                       architecture == "gemma" || architecture == "gemma3",
                   gguf_reader,
                   "'{}' must have the architecture llama, qwen2, qwen3, gemma or gemma3, got {:?}",
                   file.path(), architecture);
  const std::string prefix = architecture + ".";
  const auto size = [&](const char* key, int64_t high) {
    return number_of_layers(file, prefix + key, high, c.num_hidden_layers);
  };
  c.num_hidden_layers = file.integer(prefix + "block_count", 1, 10000);
  c.hidden_size = size("embedding_length", 1 << 17);
  c.intermediate_size = size("feed_forward_length", 1 << 20);
  c.max_position_embeddings = size("context_length", 1 << 30);
  c.num_attention_heads = c.num_key_value_heads = size("attention.head_count", 1 << 16);
  if (file.has(prefix + "attention.head_count_kv"))
    c.num_key_value_heads = size("attention.head_count_kv", 1 << 16);
  if (file.has(prefix + "attention.key_length")) c.head_dim = size("attention.key_length", 1 << 16);
  check<FileError>(c.head_dim > 0 || c.hidden_size % c.num_attention_heads == 0, gguf_reader,
                   "'{}': the number of heads must divide embedding_length, got {} and {}",
                   file.path(), c.num_attention_heads, c.hidden_size);
  c.rms_norm_eps = file.number(prefix + "attention.layer_norm_rms_epsilon", 0, 1);
  const auto base = [&](const char* key, double& value) {
    if (file.has(prefix + key)) value = file.number(prefix + key, 1, 1e12);
  };
  base("rope.freq_base", c.rope_theta);
  base("rope.freq_base_swa", c.rope_local_base_freq);
  const auto& tensors = file.tensors();
  const auto embeddings = tensors.find("token_embd.weight");
  check<FileError>(embeddings != tensors.end() && embeddings->second.shape.rank() == 2, gguf_reader,
                   "'{}' must have a matrix token_embd.weight", file.path());
  c.vocab_size = embeddings->second.shape[0];
  c.tie_word_embeddings = !tensors.contains("output.weight");
  c.attention_bias = tensors.contains("blk.0.attn_q.bias");
  c.mlp_bias = tensors.contains("blk.0.ffn_up.bias");
  if (c.is_gemma()) c.hidden_act = "gelu_pytorch_tanh";
  if (c.model_type == "gemma3_text") c.query_pre_attn_scalar = score_scalar(c);
  check_supported(file, c, prefix);
  parse_windows(file, c, prefix);
  try {
    c.check();
    c.rope_scaling = parse_rope_scaling(file, c, prefix);
    c.check();
  } catch (const ValueError& error) {
    fail<FileError>(gguf_reader, "'{}' is not a model that can be: {}", file.path(), error.what());
  }
  return c;
}

GgufMetadata decoder_metadata(const DecoderConfig& c, GgufType type) {
  c.check();
  check<ValueError>(c.query_pre_attn_scalar == 0 || c.query_pre_attn_scalar == score_scalar(c),
                    "save_decoder_gguf", "query_pre_attn_scalar must be {} in a GGUF file, got {}",
                    score_scalar(c), c.query_pre_attn_scalar);
  const char* const activation = c.is_gemma() ? "gelu_pytorch_tanh" : "silu";
  check<ValueError>(c.hidden_act == activation, "save_decoder_gguf",
                    "hidden_act must be {} in a GGUF file of {}, which has no word for it, got {}; "
                    "write a folder",
                    activation, gguf_architecture(c), c.hidden_act);
  const std::string architecture = gguf_architecture(c), prefix = architecture + ".";
  GgufMetadata metadata = {{"general.architecture", architecture},
                           {"general.type", std::string("model")},
                           {"general.file_type", file_type(type)}};
  if (gguf_type_info(type).blocks) metadata["general.quantization_version"] = uint32_t{2};
  const auto size = [&](const char* key, int64_t value) {
    metadata[prefix + key] = static_cast<uint32_t>(value);
  };
  size("vocab_size", c.vocab_size);
  size("context_length", c.max_position_embeddings);
  size("embedding_length", c.hidden_size);
  size("block_count", c.num_hidden_layers);
  size("feed_forward_length", c.intermediate_size);
  size("attention.head_count", c.num_attention_heads);
  size("attention.head_count_kv", c.num_key_value_heads);
  size("attention.key_length", c.heads_dim());
  size("attention.value_length", c.heads_dim());
  size("rope.dimension_count", c.heads_dim());
  metadata[prefix + "attention.layer_norm_rms_epsilon"] = static_cast<float>(c.rms_norm_eps);
  metadata[prefix + "rope.freq_base"] = static_cast<float>(c.rope_theta);
  add_rope_scaling(metadata, c, prefix);
  if (c.model_type == "gemma3_text")
    metadata[prefix + "rope.freq_base_swa"] = static_cast<float>(c.rope_local_base_freq);
  if (c.sliding_window == 0) return metadata;
  size("attention.sliding_window", c.sliding_window);
  std::vector<bool> slides;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer)
    slides.push_back(c.has_window(layer));
  const bool is_default = c.model_type == "gemma3_text"
                              ? slides == every_sixth_full(c.num_hidden_layers)
                              : c.slides.empty();
  if (!is_default) metadata[prefix + "attention.sliding_window_pattern"] = GgufList(slides);
  return metadata;
}

}  // namespace rw
