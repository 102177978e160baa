#include "io/models/decoder/names.h"

#include <vector>

#include "io/models/model.h"
#include "ops/ops.h"

namespace rw {

namespace {

// Rows of q and k in files of llama: its rotary embeddings turn neighbours, not halves, so that row
// i of a head's first half and row i of its second half lie side by side. A view [heads, half, 2,
// ...].
Tensor as_neighbours(const Tensor& t, int64_t heads) {
  const Shape& shape = t.shape();
  const int64_t half = shape[0] / heads / 2;
  if (t.rank() == 1) return transpose(reshape(t, {heads, 2, half}), 1, 2);
  return transpose(reshape(t, {heads, 2, half, shape[1]}), 1, 2);
}

}  // namespace

std::string gguf_architecture(const DecoderConfig& c) {
  if (c.model_type == "mistral") return "llama";
  return c.model_type == "gemma3_text" ? "gemma3" : c.model_type;
}

// The rules apply one after the other.
std::string gguf_name(const std::string& name, const DecoderConfig& c) {
  std::vector<Renaming> rules = {{"model.embed_tokens", "token_embd"},
                                 {"model.layers.", "blk."},
                                 {"model.norm", "output_norm"},
                                 {"lm_head", "output"},
                                 {"self_attn.q_", "attn_q_"},
                                 {"self_attn.k_", "attn_k_"},
                                 {"self_attn.v_", "attn_v_"},
                                 {"self_attn.o_", "attn_output_"},
                                 {"mlp.gate_", "ffn_gate_"},
                                 {"mlp.up_", "ffn_up_"},
                                 {"mlp.down_", "ffn_down_"},
                                 {"_proj.", "."},
                                 {"input_layernorm", "attn_norm"},
                                 {"pre_feedforward_layernorm", "ffn_norm"},
                                 {"post_feedforward_layernorm", "post_ffw_norm"}};
  rules.push_back({"post_attention_layernorm",
                   c.model_type == "gemma3_text" ? "post_attention_norm" : "ffn_norm"});
  return renamed({{name, {}}}, rules).front().name;
}

Tensor in_gguf_order(const std::string& name, const Tensor& t, const DecoderConfig& c) {
  if (gguf_architecture(c) != "llama") return t;
  if (name.find("self_attn.q_") != name.npos) return as_neighbours(t, c.num_attention_heads);
  if (name.find("self_attn.k_") != name.npos) return as_neighbours(t, c.num_key_value_heads);
  return t;
}

}  // namespace rw
