// GPT-2 (Radford et al. 2019): pre-norm causal layers, learned positions, GELU (tanh), logits tied
// to the word embeddings. Parameters have the names of Hugging Face's classes GPT2Model and
// GPT2LMHeadModel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../nn/layers.h"
#include "../nn/norm.h"
#include "causal_lm.h"

namespace rw {

// Members and defaults are those of Hugging Face's config.json: gpt2.
struct GptConfig {
  int64_t vocab_size = 50257;  // tokens of the vocabulary
  int64_t n_positions = 1024;  // longest sequence
  // Elements per token, layers, and heads of each; the heads divide the elements (ValueError).
  int64_t n_embd = 768, n_layer = 12, n_head = 12;
  int64_t n_inner = 0;  // elements between a layer's two linear layers; 0: 4 n_embd

  // The dropout of each half of a layer, of the embeddings, and of the attention's weights.
  double resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1;

  double layer_norm_epsilon = 1e-5;  // of all layer norms
  double initializer_range = 0.02;   // standard deviation of initial weights

  // n_inner, or 4 n_embd if that is 0.
  int64_t inner() const { return n_inner > 0 ? n_inner : 4 * n_embd; }
  // gpt2, gpt2-medium, gpt2-large or gpt2-xl. Throws ValueError.
  static GptConfig preset(const std::string& name);
};

// Embeddings of words and positions, the layers, and a last norm. Weights of linear layers are
// [out, in] here, and [in, out] in Hugging Face's files (io/models/gpt.h).
class GptModel : public Module {
 public:
  // ValueError for sizes that are not positive or do not go together.
  explicit GptModel(const GptConfig& config);
  ~GptModel() override;

  // ids i32 [N, S] -> [N, S, n_embd]. With caches, the tokens come after those in the caches.
  // ShapeError for another rank, or beyond n_positions.
  Tensor forward(Tensor ids) override { return forward(std::move(ids), nullptr); }
  Tensor forward(Tensor ids, KeyValueCaches* caches) {
    return forward(std::move(ids), caches, {}, {});
  }
  // The same with rows of several texts: `starts` is that of CausalLM::hidden(), and positions i32
  // [N, S] are those of the tokens in their texts. Both are undefined if each row is one text.
  Tensor forward(Tensor ids, KeyValueCaches* caches, const Tensor& starts, const Tensor& positions);

  // Empty caches for `batch` sequences of `longest` tokens, of the dtype of the layers' products.
  KeyValueCaches make_caches(int64_t batch, int64_t longest) const;

  const GptConfig& config() const { return config_; }  // as given to the constructor

  Embedding wte, wpe;  // [vocab_size, n_embd], [n_positions, n_embd]

 private:
  class Block;

  GptConfig config_;
  Dropout dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  LayerNorm ln_f_;
};

// The model with its head, which has no weights of its own.
class GptLMHeadModel : public CausalLM {
 public:
  explicit GptLMHeadModel(const GptConfig& config);

  Tensor hidden(Tensor ids, KeyValueCaches* caches, const Tensor& starts = {}) override {
    const Tensor positions = starts ? positions_of(ids, caches, starts) : Tensor();
    return transformer.forward(std::move(ids), caches, starts, positions);
  }
  Tensor head_weight() const override { return transformer.wte.weight; }
  int64_t longest() const override { return transformer.config().n_positions; }
  KeyValueCaches make_caches(int64_t batch, int64_t longest) const override {
    return transformer.make_caches(batch, longest);
  }

  GptModel transformer;  // embeddings and layers
};

}  // namespace rw
