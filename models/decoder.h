// Decoders of Llama's kind (Touvron et al. 2023): Llama 2 and 3, Mistral, SmolLM2, Qwen2.5, Qwen3,
// Gemma and the text models of Gemma 3. Parameters have the names of Hugging Face's classes.
#pragma once

#include <memory>
#include <vector>

#include "../nn/layers.h"
#include "../nn/norm.h"
#include "../ops/network/positions.h"
#include "causal_lm.h"
#include "decoder_config.h"

namespace rw {

// Embeddings, layers of attention and a gated MLP, a last norm, and a head. Queries and keys turn
// by their positions (ops/network/positions.h), heads of queries share those of keys, and layers
// may look back to a window only.
class Decoder : public CausalLM {
 public:
  // ValueError as DecoderConfig::check(). Weights start as Hugging Face's: normal, norms at 1.
  // Parameters are of `dtype` (as by Module::to()), layer by layer, so that the model is never in
  // memory in f32 as a whole.
  explicit Decoder(const DecoderConfig& config, DType dtype = DType::f32);
  ~Decoder() override;

  Tensor hidden(Tensor ids, KeyValueCaches* caches, const Tensor& starts = {}) override;
  Tensor head_weight() const override { return lm_head_ ? lm_head_->weight : embed_tokens_.weight; }
  const BlockMatrix* head_blocks() const override;
  Linear* head() override { return lm_head_.get(); }
  int64_t longest() const override { return config_.max_position_embeddings; }
  KeyValueCaches make_caches(int64_t batch, int64_t longest) const override;

  // Each MLP takes at most so many tokens at a time (0: all), each time in a checkpoint segment.
  // What it computes in between is as large as that, whatever the batch; gradients of its weights
  // are sums in another order. ValueError for negative numbers.
  void set_mlp_rows(int64_t rows);

  const DecoderConfig& config() const { return config_; }  // as given to the constructor
  DType dtype() const;                                     // of the embeddings of tokens

 private:
  class Layer;
  struct Texts;

  DecoderConfig config_;
  int64_t mlp_rows_ = 0;
  // Those of Gemma 3's layers without and with a window; others have the first.
  RotaryOptions global_, local_;
  Embedding embed_tokens_;
  std::vector<std::unique_ptr<Layer>> layers_;
  RMSNorm norm_;
  std::unique_ptr<Linear> lm_head_;  // null: tied to the embeddings
};

}  // namespace rw
