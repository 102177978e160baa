// Small decoders of each family, for tests of their files.
#pragma once

#include <string>
#include <vector>

#include "../../models/decoder.h"
#include "../fixtures/optim_fixture.h"

namespace rw::test {

// A vocabulary of 50 tokens, 2 layers, 4 heads of queries and 2 of keys; rows are whole blocks of
// 32.
inline DecoderConfig small_decoder(const std::string& model_type) {
  DecoderConfig c{.model_type = model_type,
                  .vocab_size = 50,
                  .hidden_size = 64,
                  .intermediate_size = 96,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 4,
                  .num_key_value_heads = 2,
                  .head_dim = 16,
                  .max_position_embeddings = 64,
                  .initializer_range = 0.25};
  c.attention_bias = model_type == "qwen2";
  if (model_type == "llama")
    c.rope_scaling = {.type = "llama3", .factor = 8, .original_max_position_embeddings = 32};
  if (model_type == "mistral") c.sliding_window = 5;
  if (model_type == "qwen3") c.head_dim = 32;
  if (c.is_gemma()) c.tie_word_embeddings = true, c.hidden_act = "gelu_pytorch_tanh";
  if (model_type == "gemma3_text") {
    c.num_hidden_layers = 7;
    c.rope_theta = 1e6;
    c.sliding_window = 5;
    c.slides = {true, true, true, true, true, false, true};
    c.query_pre_attn_scalar = 16;
  }
  return c;
}

inline std::vector<DecoderConfig> small_decoders() {
  std::vector<DecoderConfig> all;
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text"})
    all.push_back(small_decoder(type));
  return all;
}

// The logits of 12 tokens.
inline std::vector<float> logits_of(Decoder& model) {
  const NoGrad guard;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 12; ++i) ids.push_back(i * 7 % 50);
  return model(tensor(ids, {1, 12})).to_vector();
}

}  // namespace rw::test
