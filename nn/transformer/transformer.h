// Attention and the layers of "Attention Is All You Need" (Vaswani et al. 2017), with PyTorch's
// names, defaults and parameters. Sequences are [N, S, E]: PyTorch's batch_first = true.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "../layers.h"
#include "../norm.h"
#include "kv_cache.h"

namespace rw {

// The keys that the queries look at, as in the op attention; by default all of them.
struct Attend {
  bool causal = false;  // position i looks at 0 .. i only
  Tensor mask = {};     // f32, broadcasts to [N, heads, S, T], added to the scores
  Tensor lengths = {};  // i32 [N]: keys from there on are padding
  // Keys and values of this call are appended to these, and all of them are looked at; causal then
  // means up to the query's own. Only without gradients: AutogradError.
  KeyValueCache* cache = nullptr;
};

// Queries [N, S, embed_dim], keys and values [N, T, embed_dim] -> [N, S, embed_dim]. One product
// computes all projections of one tensor. Parameters in_proj_weight [3 embed_dim, embed_dim],
// in_proj_bias, out_proj.weight, out_proj.bias; the weights start as PyTorch's, the biases at 0.
// ValueError unless num_heads divides embed_dim; ShapeError.
class MultiheadAttention : public Module {
 public:
  // `dropout` is that of the attention's weights, `bias` says whether projections have one.
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, float dropout = 0, bool bias = true,
                     GeneratorRef generator = {});
  Tensor forward(Tensor x) override { return forward(std::move(x), Attend{}); }
  // Self-attention.
  Tensor forward(Tensor x, const Attend& attend);
  // key and value are often the same tensor, with a handle each.
  Tensor forward(Tensor query, Tensor key, Tensor value, const Attend& attend = {});

  Linear in_proj;   // of query, key and value: in_proj_weight, in_proj_bias
  Linear out_proj;  // over the joined heads

 private:
  std::vector<Tensor> project(Tensor x, int64_t first, int64_t count);
  Tensor join(Tensor q, Tensor k, Tensor v, const Attend& attend);

  int64_t hidden_, heads_;
  float dropout_;
  GeneratorRef generator_;
};

// The options that all layers of a transformer share.
struct TransformerOptions {
  int64_t d_model = 512, nhead = 8;     // elements per token, and heads, which divide them
  int64_t dim_feedforward = 2048;       // between a layer's two linear layers
  float dropout = 0.1f;                 // of weights, of activations, of what each part adds
  Tensor (*activation)(Tensor) = relu;  // between the linear layers: any op
  float layer_norm_eps = 1e-5f;         // of all layer norms
  bool norm_first = false;              // x + f(norm(x)) instead of norm(x + f(x))
  bool bias = true;                     // of linear layers, projections and layer norms
};

// Self-attention, then two linear layers, each with dropout, residual and LayerNorm. [N, S,
// d_model] -> the same. ValueError for sizes, here and below.
class TransformerEncoderLayer : public Module {
 public:
  explicit TransformerEncoderLayer(const TransformerOptions& options, GeneratorRef generator = {});
  Tensor forward(Tensor src) override { return forward(std::move(src), Attend{}); }
  // src looks at itself as `attend` says.
  Tensor forward(Tensor src, const Attend& attend);

  MultiheadAttention self_attn;  // self_attn.in_proj_weight, ...
  Linear linear1, linear2;       // with the activation between
  LayerNorm norm1, norm2;        // of the attention, of the linear layers
  Dropout dropout;               // of activations, and of what each part adds

 private:
  Tensor feed_forward(Tensor x);

  Tensor (*activation_)(Tensor);
  bool norm_first_;
};

// Self-attention, attention to `memory` [N, T, d_model], then two linear layers, each with dropout,
// residual and LayerNorm. tgt [N, S, d_model] -> the same.
class TransformerDecoderLayer : public Module {
 public:
  explicit TransformerDecoderLayer(const TransformerOptions& options, GeneratorRef generator = {});
  // tgt looks at itself as `to_target` says, and at `memory` as `to_memory`.
  Tensor forward(Tensor tgt, Tensor memory, const Attend& to_target = {},
                 const Attend& to_memory = {});

  MultiheadAttention self_attn, multihead_attn;  // to tgt, and to memory
  Linear linear1, linear2;                       // with the activation between
  LayerNorm norm1, norm2, norm3;                 // of either attention, of the linear layers
  Dropout dropout;                               // of activations, and of what each part adds

 private:
  Tensor feed_forward(Tensor x);

  Tensor (*activation_)(Tensor);
  bool norm_first_;
};

// A number of encoder layers, layers.0, layers.1, ..., with initial values of their own, and a
// LayerNorm `norm` after them if asked for: with norm_first nothing else normalises the last sum.
class TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerOptions& options, int num_layers, bool norm = false,
                     GeneratorRef generator = {});
  Tensor forward(Tensor src) override { return forward(std::move(src), Attend{}); }
  // A cache belongs to one layer: ValueError for one here.
  Tensor forward(Tensor src, const Attend& attend);

 private:
  std::vector<std::unique_ptr<TransformerEncoderLayer>> layers_;
  std::optional<LayerNorm> norm_;
};

// A number of decoder layers, otherwise like TransformerEncoder.
class TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerOptions& options, int num_layers, bool norm = false,
                     GeneratorRef generator = {});
  // Arguments as for the layers. A cache belongs to one layer: ValueError.
  Tensor forward(Tensor tgt, const Tensor& memory, const Attend& to_target = {},
                 const Attend& to_memory = {});

 private:
  std::vector<std::unique_ptr<TransformerDecoderLayer>> layers_;
  std::optional<LayerNorm> norm_;
};

// Encoder and decoder, each with a last LayerNorm; all matrices start with xavier_uniform_. The
// caller supplies embeddings and positions.
class Transformer : public Module {
 public:
  explicit Transformer(const TransformerOptions& options = {}, int num_encoder_layers = 6,
                       int num_decoder_layers = 6, GeneratorRef generator = {});
  // src [N, T, d_model], tgt [N, S, d_model] -> [N, S, d_model].
  Tensor forward(Tensor src, Tensor tgt, const Attend& to_source = {}, const Attend& to_target = {},
                 const Attend& to_memory = {});

  TransformerEncoder encoder;  // of src
  TransformerDecoder decoder;  // of tgt, which attends to the encoder's result
};

}  // namespace rw
