// The shape of a decoder language model: Llama 2 and 3, Mistral, SmolLM2, Qwen2.5, Qwen3, Gemma.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rw {

// How rotary embeddings reach beyond the positions of pretraining: rope_scaling of config.json,
// where `type` is linear (Chen et al. 2023), llama3 (Dubey et al. 2024) or yarn (Peng et al. 2023).
struct RopeScaling {
  std::string type;                              // "": the embeddings are as trained
  double factor = 1;                             // positions reach this much further
  double low_freq_factor = 1;                    // llama3: wavelengths above original / low stretch
  double high_freq_factor = 4;                   // llama3: those below original / high do not
  double beta_fast = 32, beta_slow = 1;          // yarn: turns within the original context
  double attention_factor = 0;                   // yarn: of cos and sin; 0: 0.1 ln(factor) + 1
  int64_t original_max_position_embeddings = 0;  // tokens of pretraining; 0: those of the model

  bool operator==(const RopeScaling&) const = default;
};

// Rotary embeddings turn the pairs of queries and keys by these numbers.
struct RotarySchedule {
  std::vector<float> frequencies;  // radians from one position to the next, for each pair of a head
  float scale = 1;                 // of the turned pairs
};

// Members are named as in Hugging Face's config.json; defaults are those of a small Qwen3.
struct DecoderConfig {
  std::string model_type = "qwen3";  // llama, mistral, qwen2, qwen3, gemma or gemma3_text
  int64_t vocab_size = 32000;        // tokens of the vocabulary
  int64_t hidden_size = 576;         // elements per token
  int64_t intermediate_size = 1536;  // elements between the linear layers of an MLP
  int64_t num_hidden_layers = 30;    // each of attention and an MLP
  int64_t num_attention_heads = 9, num_key_value_heads = 3;  // the latter divide the former
  int64_t head_dim = 0;                                      // 0: hidden_size / heads
  int64_t max_position_embeddings = 2048;                    // longest sequence
  double rms_norm_eps = 1e-6;                                // of all norms
  double rope_theta = 10000;                                 // of rotary embeddings
  double rope_local_base_freq = 10000;  // the same for layers with a sliding window (Gemma 3)
  RopeScaling rope_scaling;             // of layers without a sliding window
  bool tie_word_embeddings = false;     // whether the head's weight is that of the embeddings
  bool attention_bias = false;          // biases of q, k, v and o; qwen2 has the first three anyway
  bool mlp_bias = false;                // biases of gate, up and down
  std::string hidden_act = "silu";      // or gelu_pytorch_tanh
  // Tokens that a layer with a sliding window looks back to, itself included, and which layers
  // have one: 0, none; an empty list, all of them.
  int64_t sliding_window = 0;
  std::vector<bool> slides;
  double query_pre_attn_scalar = 0;  // scores are divided by its root; 0: by that of head_dim
  double initializer_range = 0.02;   // standard deviation of initial weights

  // head_dim, or hidden_size / num_attention_heads if that is 0.
  int64_t heads_dim() const { return head_dim > 0 ? head_dim : hidden_size / num_attention_heads; }
  // Whether a layer has a sliding window.
  bool has_window(int64_t layer) const {
    return sliding_window > 0 && (slides.empty() || slides[static_cast<size_t>(layer)]);
  }
  // Whether norms multiply by 1 + weight, and embeddings are times the root of hidden_size.
  bool is_gemma() const { return model_type.starts_with("gemma"); }
  // The schedule of the layers without a sliding window, or of Gemma 3's with one (`local`).
  RotarySchedule rotary(bool local = false) const;
  // The elements of all matrices; norms and biases are few beside them.
  int64_t matrix_elements() const;

  // ValueError for sizes that are not positive or do not go together, and for unknown words.
  void check() const;
  // smollm2-135m, smollm2-360m, qwen2.5-0.5b, qwen3-0.6b, qwen3-1.7b, qwen3-8b, qwen3-14b,
  // qwen3-32b, llama-3.2-1b, llama-3.2-3b, llama-3.1-8b, mistral-7b (0.1) or gemma-3-1b, as
  // published; or tiny, of Qwen3's kind, which learns from a short text in minutes. Throws
  // ValueError.
  static DecoderConfig preset(const std::string& name);

  bool operator==(const DecoderConfig&) const = default;
};

}  // namespace rw
