#include "models/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/base/error.h"

namespace rw {

namespace {

template <class... Words>
bool is_one_of(const std::string& word, const Words&... words) {
  return ((word == words) || ...);
}

// The share of a frequency that is divided by the factor: 0 for pairs that turn often within the
// original context, 1 for those that hardly turn.
double stretched_share(const RopeScaling& s, double original, double frequency, double pair,
                       double pairs, double theta) {
  if (s.type == "linear") return 1;
  if (s.type == "llama3") {
    const double turns = original * frequency / (2 * std::numbers::pi);
    return 1 - std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor),
                          0.0, 1.0);
  }
  // YaRN's ramp is linear in the number of the pair.
  const auto pair_of = [&](double turns) {
    return pairs * std::log(original / (turns * 2 * std::numbers::pi)) / std::log(theta);
  };
  const double first = std::max(std::floor(pair_of(s.beta_fast)), 0.0),
               last = std::min(std::ceil(pair_of(s.beta_slow)), 2 * pairs - 1);
  return std::clamp((pair - first) / (last == first ? 1e-3 : last - first), 0.0, 1.0);
}

void check_scaling(const RopeScaling& s) {
  check(is_one_of(s.type, "", "linear", "llama3", "yarn"), "DecoderConfig",
        "rope_scaling must be linear, llama3 or yarn, got '{}'", s.type);
  if (s.type.empty()) return;
  check(std::isfinite(s.factor) && s.factor > 0 && s.original_max_position_embeddings >= 0 &&
            std::isfinite(s.attention_factor) && s.attention_factor >= 0,
        "DecoderConfig", "rope_scaling needs positive factors, got factor {}", s.factor);
  if (s.type == "llama3")
    check(s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor, "DecoderConfig",
          "high_freq_factor must be above low_freq_factor, got {} and {}", s.high_freq_factor,
          s.low_freq_factor);
  if (s.type == "yarn")
    check(s.beta_slow > 0 && s.beta_fast >= s.beta_slow, "DecoderConfig",
          "beta_fast must not be below beta_slow, got {} and {}", s.beta_fast, s.beta_slow);
}

void check_rotary(const DecoderConfig& c) {
  check(c.heads_dim() % 2 == 0 && c.heads_dim() <= 256, "DecoderConfig",
        "head_dim must be even and at most 256, got {}", c.heads_dim());
  check(c.rope_theta > 1 && std::isfinite(c.rope_theta) && c.rope_local_base_freq > 1 &&
            std::isfinite(c.rope_local_base_freq),
        "DecoderConfig", "the bases of rotary embeddings must be above 1, got {} and {}",
        c.rope_theta, c.rope_local_base_freq);
  check_scaling(c.rope_scaling);
}

DecoderConfig smollm2(int64_t hidden, int64_t inner, int64_t layers, int64_t heads, double range) {
  return {.model_type = "llama",
          .vocab_size = 49152,
          .hidden_size = hidden,
          .intermediate_size = inner,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = heads / 3,
          .max_position_embeddings = 8192,
          .rms_norm_eps = 1e-5,
          .rope_theta = 100000,
          .tie_word_embeddings = true,
          .initializer_range = range};
}

DecoderConfig qwen3(int64_t hidden, int64_t inner) {
  return {.vocab_size = 151936,
          .hidden_size = hidden,
          .intermediate_size = inner,
          .num_hidden_layers = 28,
          .num_attention_heads = 16,
          .num_key_value_heads = 8,
          .head_dim = 128,
          .max_position_embeddings = 40960,
          .rope_theta = 1e6,
          .tie_word_embeddings = true};
}

// The larger ones have a head of their own.
DecoderConfig large_qwen3(int64_t hidden, int64_t inner, int64_t layers, int64_t heads) {
  DecoderConfig c = qwen3(hidden, inner);
  c.num_hidden_layers = layers;
  c.num_attention_heads = heads;
  c.tie_word_embeddings = false;
  return c;
}

DecoderConfig qwen2() {
  return {.model_type = "qwen2",
          .vocab_size = 151936,
          .hidden_size = 896,
          .intermediate_size = 4864,
          .num_hidden_layers = 24,
          .num_attention_heads = 14,
          .num_key_value_heads = 2,
          .max_position_embeddings = 32768,
          .rope_theta = 1e6,
          .tie_word_embeddings = true,
          .attention_bias = true};
}

DecoderConfig llama3(int64_t hidden, int64_t inner, int64_t layers, int64_t heads, double factor) {
  return {.model_type = "llama",
          .vocab_size = 128256,
          .hidden_size = hidden,
          .intermediate_size = inner,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = 8,
          .max_position_embeddings = 131072,
          .rms_norm_eps = 1e-5,
          .rope_theta = 500000,
          .rope_scaling = {.type = "llama3",
                           .factor = factor,
                           .original_max_position_embeddings = 8192},
          .tie_word_embeddings = factor == 32};
}

DecoderConfig mistral() {
  return {.model_type = "mistral",
          .hidden_size = 4096,
          .intermediate_size = 14336,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .num_key_value_heads = 8,
          .max_position_embeddings = 32768,
          .rms_norm_eps = 1e-5,
          .sliding_window = 4096};
}

DecoderConfig gemma3() {
  DecoderConfig c{.model_type = "gemma3_text",
                  .vocab_size = 262144,
                  .hidden_size = 1152,
                  .intermediate_size = 6912,
                  .num_hidden_layers = 26,
                  .num_attention_heads = 4,
                  .num_key_value_heads = 1,
                  .head_dim = 256,
                  .max_position_embeddings = 32768,
                  .rope_theta = 1e6,
                  .tie_word_embeddings = true,
                  .hidden_act = "gelu_pytorch_tanh",
                  .sliding_window = 512,
                  .query_pre_attn_scalar = 256};
  for (int64_t i = 1; i <= c.num_hidden_layers; ++i) c.slides.push_back(i % 6 != 0);
  return c;
}

DecoderConfig tiny() {
  return {.vocab_size = 2048,
          .hidden_size = 192,
          .intermediate_size = 512,
          .num_hidden_layers = 4,
          .num_attention_heads = 6,
          .num_key_value_heads = 2,
          .head_dim = 32,
          .tie_word_embeddings = true};
}

}  // namespace

RotarySchedule DecoderConfig::rotary(bool local) const {
  const RopeScaling& s = rope_scaling;
  const bool is_scaled = !local && !s.type.empty();
  const double theta = local ? rope_local_base_freq : rope_theta;
  const double original = static_cast<double>(s.original_max_position_embeddings > 0
                                                  ? s.original_max_position_embeddings
                                                  : max_position_embeddings);
  const auto pairs = static_cast<double>(heads_dim() / 2);
  RotarySchedule schedule;
  for (double pair = 0; pair < pairs; ++pair) {
    double frequency = std::pow(theta, -pair / pairs);
    if (is_scaled) {
      const double share = stretched_share(s, original, frequency, pair, pairs, theta);
      frequency *= share / s.factor + 1 - share;
    }
    schedule.frequencies.push_back(static_cast<float>(frequency));
  }
  if (is_scaled && s.type == "yarn")
    schedule.scale = static_cast<float>(s.attention_factor > 0 ? s.attention_factor
                                        : s.factor > 1         ? 0.1 * std::log(s.factor) + 1
                                                               : 1);
  return schedule;
}

void DecoderConfig::check() const {
  const char* me = "DecoderConfig";
  rw::check(is_one_of(model_type, "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text"), me,
            "model_type must be llama, mistral, qwen2, qwen3, gemma or gemma3_text, got '{}'",
            model_type);
  rw::check(vocab_size > 0 && hidden_size > 0 && intermediate_size > 0 && num_hidden_layers > 0 &&
                num_attention_heads > 0 && num_key_value_heads > 0 && head_dim >= 0 &&
                max_position_embeddings > 0,
            me, "all sizes must be positive");
  rw::check(num_attention_heads % num_key_value_heads == 0, me,
            "num_key_value_heads must divide num_attention_heads, got {} and {}",
            num_key_value_heads, num_attention_heads);
  rw::check(head_dim > 0 || hidden_size % num_attention_heads == 0, me,
            "num_attention_heads must divide hidden_size, got {} and {}", num_attention_heads,
            hidden_size);
  check_rotary(*this);
  rw::check(is_one_of(hidden_act, "silu", "gelu_pytorch_tanh"), me,
            "hidden_act must be silu or gelu_pytorch_tanh, got '{}'", hidden_act);
  rw::check(sliding_window >= 0 && (slides.empty() || std::ssize(slides) == num_hidden_layers), me,
            "needs a sliding window for each layer or for all, got {} of {} for {} layers",
            slides.size(), sliding_window, num_hidden_layers);
  rw::check(rms_norm_eps >= 0 && std::isfinite(rms_norm_eps) && initializer_range >= 0 &&
                std::isfinite(initializer_range) && query_pre_attn_scalar >= 0 &&
                std::isfinite(query_pre_attn_scalar),
            me, "rms_norm_eps, initializer_range and query_pre_attn_scalar must not be negative");
}

int64_t DecoderConfig::matrix_elements() const {
  const int64_t heads = num_attention_heads + num_key_value_heads;  // q and o, k and v
  const int64_t layer = 2 * heads * heads_dim() * hidden_size + 3 * hidden_size * intermediate_size;
  const int64_t tables = tie_word_embeddings ? 1 : 2;
  return num_hidden_layers * layer + tables * vocab_size * hidden_size;
}

DecoderConfig DecoderConfig::preset(const std::string& name) {
  const std::pair<const char*, DecoderConfig> presets[] = {
      {"tiny", tiny()},
      {"smollm2-135m", smollm2(576, 1536, 30, 9, 1.0 / 24)},
      {"smollm2-360m", smollm2(960, 2560, 32, 15, 0.02)},
      {"qwen2.5-0.5b", qwen2()},
      {"qwen3-0.6b", qwen3(1024, 3072)},
      {"qwen3-1.7b", qwen3(2048, 6144)},
      {"qwen3-8b", large_qwen3(4096, 12288, 36, 32)},
      {"qwen3-14b", large_qwen3(5120, 17408, 40, 40)},
      {"qwen3-32b", large_qwen3(5120, 25600, 64, 64)},
      {"llama-3.2-1b", llama3(2048, 8192, 16, 32, 32)},
      {"llama-3.2-3b", llama3(3072, 8192, 28, 24, 32)},
      {"llama-3.1-8b", llama3(4096, 14336, 32, 32, 8)},
      {"mistral-7b", mistral()},
      {"gemma-3-1b", gemma3()}};
  std::string names;
  for (const auto& [known, config] : presets) {
    if (name == known) return config;
    names += names.empty() ? known : std::string(", ") + known;
  }
  fail("DecoderConfig", "there are {}, not '{}'", names, name);
}

}  // namespace rw
