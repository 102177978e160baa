// The layers of BERT, under the names that Hugging Face gives them and their parameters. PyTorch's
// transformer is in nn/transformer/transformer.h.
#pragma once

#include "../layers.h"
#include "../norm.h"

namespace rw {

//! torch: none
// Self-attention of x [N, S, hidden] -> the same shape (Vaswani et al. 2017): `query`, `key` and
// `value` of each token, and `dense` over the joined heads, all with bias. `dropout` is that of the
// attention's weights; if `causal`, position i looks at 0 .. i only. ValueError unless `heads`
// divides `hidden`; ShapeError for x of another rank. Parameters self.query, self.key,
// self.value and output.dense.
class BertAttention : public Module {
 public:
  BertAttention(int64_t hidden, int64_t heads, float dropout = 0, bool causal = false,
                GeneratorRef generator = {});
  Tensor forward(Tensor x) override { return forward(std::move(x), {}); }
  // mask and lengths are those of the op `attention`; if undefined, all keys count.
  Tensor forward(Tensor x, const Tensor& mask, const Tensor& lengths = {});

  Linear query, key, value, dense;

 private:
  int64_t heads_;
  float dropout_;
  bool causal_;
  GeneratorRef generator_;
};

// The sizes of a layer: `hidden` elements per token, in this many `heads`, and `intermediate`
// elements between its two linear layers.
struct BertLayerOptions {
  int64_t hidden, heads, intermediate;
  float dropout = 0.1f;            // of what each half adds
  float attention_dropout = 0.1f;  // of the weights
  float norm_eps = 1e-12f;         // of the layer norms
  bool pre_norm = false;           // x + f(norm(x)) instead of BERT's norm(x + f(x))
  bool causal = false;             // position i looks at 0 .. i only
};

//! torch: none
// Attention, then two linear layers with GELU (erf) between; each half with dropout, residual and
// LayerNorm. x [N, S, hidden] -> the same shape.
class BertLayer : public Module {
 public:
  explicit BertLayer(const BertLayerOptions& options, GeneratorRef generator = {});
  Tensor forward(Tensor x) override { return forward(std::move(x), {}); }
  // mask and lengths are those of the op `attention`.
  Tensor forward(Tensor x, const Tensor& mask, const Tensor& lengths = {});

  BertAttention attention;      // attention.self.query .. attention.output.dense
  LayerNorm attention_norm;     // attention.output.LayerNorm
  Linear intermediate, output;  // intermediate.dense, output.dense
  LayerNorm output_norm;        // output.LayerNorm

 private:
  Dropout dropout_;
  bool pre_norm_;
};

}  // namespace rw
