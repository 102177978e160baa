#include "nn/transformer/transformer.h"

#include <cmath>

#include "nn/init.h"
#include "nn/layer_stack.h"
#include "ops/layout/unbind.h"

namespace rw {

namespace {

// Runs first in a member initializer list, before the members check the same sizes under their own
// names.
int64_t checked_heads(const char* module, int64_t hidden, int64_t heads) {
  check_positive(module, {{"the size", hidden}, {"the number of heads", heads}});
  check(hidden % heads == 0, module, "the heads must divide the size, got {} heads for {}", heads,
        hidden);
  return hidden;
}

const TransformerOptions& checked(const char* module, const TransformerOptions& o) {
  checked_heads(module, o.d_model, o.nhead);
  check_positive(module, {{"dim_feedforward", o.dim_feedforward}});
  check(o.activation != nullptr, module, "there must be an activation");
  return o;
}

// The projections of query, key and value, whose values are the caller's to set.
Linear without_values(int64_t embed_dim, bool bias) {
  const init::SkipInit none;
  return {embed_dim, 3 * embed_dim, bias};
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads, float dropout,
                                       bool bias, GeneratorRef generator)
    : in_proj(without_values(checked_heads("MultiheadAttention", embed_dim, num_heads), bias)),
      out_proj(embed_dim, embed_dim, bias),
      hidden_(embed_dim),
      heads_(num_heads),
      dropout_(dropout),
      generator_(generator) {
  init::xavier_uniform_(in_proj.weight);
  if (bias)
    for (const Tensor& b : {in_proj.bias, out_proj.bias}) init::zeros_(b);
  register_module("in_proj_", in_proj);
  register_module("out_proj", out_proj);
}

// Projections [first, first + count) of query, key and value, each [N, heads, S, dim].
std::vector<Tensor> MultiheadAttention::project(Tensor x, int64_t first, int64_t count) {
  const int64_t n = x.size(0), length = x.size(1);
  const auto part = [&](const Tensor& t, int axis) {
    return count == 3 || !t ? t : slice(t, axis, first * hidden_, (first + count) * hidden_);
  };
  Tensor packed = in_proj.substitute()
                      ? part(in_proj(std::move(x)), -1)
                      : linear(std::move(x), part(in_proj.weight, 0), part(in_proj.bias, 0));
  std::vector<Tensor> parts =
      unbind(reshape(std::move(packed), {n, length, count, heads_, hidden_ / heads_}), 2);
  for (Tensor& p : parts) p = transpose(std::move(p), 1, 2);
  return parts;
}

Tensor MultiheadAttention::join(Tensor q, Tensor k, Tensor v, const Attend& attend) {
  if (attend.cache) std::tie(k, v) = attend.cache->append(k, v);
  const AttentionOptions options{.causal = attend.causal,
                                 .dropout = is_training() ? dropout_ : 0,
                                 .generator = &generator_.get(),
                                 .lower_right = attend.cache != nullptr};
  const int64_t n = q.size(0), length = q.size(2);
  Tensor y =
      attention(std::move(q), std::move(k), std::move(v), options, attend.mask, attend.lengths);
  return out_proj(reshape(transpose(std::move(y), 1, 2), {n, length, hidden_}));
}

Tensor MultiheadAttention::forward(Tensor x, const Attend& attend) {
  check<ShapeError>(x.rank() == 3, "MultiheadAttention", "x must be [N, S, {}], got {}", hidden_,
                    x);
  std::vector<Tensor> parts = project(std::move(x), 0, 3);
  return join(std::move(parts[0]), std::move(parts[1]), std::move(parts[2]), attend);
}

Tensor MultiheadAttention::forward(Tensor query, Tensor key, Tensor value, const Attend& attend) {
  const bool same_keys = key.pointer() == value.pointer();
  if (same_keys && query.pointer() == key.pointer()) {
    key = value = {};
    return forward(std::move(query), attend);
  }
  check<ShapeError>(query.rank() == 3 && key.rank() == 3 && value.rank() == 3, "MultiheadAttention",
                    "inputs must be [N, S, {}], got {}, {} and {}", hidden_, query, key, value);
  Tensor q = std::move(project(std::move(query), 0, 1)[0]), k, v;
  if (same_keys) {
    value = {};
    std::vector<Tensor> parts = project(std::move(key), 1, 2);
    k = std::move(parts[0]), v = std::move(parts[1]);
  } else {
    k = std::move(project(std::move(key), 1, 1)[0]);
    v = std::move(project(std::move(value), 2, 1)[0]);
  }
  return join(std::move(q), std::move(k), std::move(v), attend);
}

// ---- layers ------------------------------------------------------------------------------------
namespace {

// x + f(norm(x)), or norm(x + f(x)).
template <class F>
Tensor residual(Tensor x, LayerNorm& norm, bool norm_first, const F& f) {
  Tensor more = f(norm_first ? norm(x) : x);
  x = add(std::move(x), std::move(more));
  return norm_first ? x : norm(std::move(x));
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerOptions& o,
                                                 GeneratorRef generator)
    : self_attn(checked("TransformerEncoderLayer", o).d_model, o.nhead, o.dropout, o.bias,
                generator),
      linear1(o.d_model, o.dim_feedforward, o.bias),
      linear2(o.dim_feedforward, o.d_model, o.bias),
      norm1(o.d_model, o.layer_norm_eps, o.bias),
      norm2(o.d_model, o.layer_norm_eps, o.bias),
      dropout(o.dropout, generator),
      activation_(o.activation),
      norm_first_(o.norm_first) {
  register_module("self_attn", self_attn);
  register_module("linear1", linear1);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("dropout", dropout);
}

Tensor TransformerEncoderLayer::feed_forward(Tensor x) {
  return dropout(linear2(dropout(activation_(linear1(std::move(x))))));
}

Tensor TransformerEncoderLayer::forward(Tensor src, const Attend& attend) {
  src = residual(std::move(src), norm1, norm_first_,
                 [&](Tensor x) { return dropout(self_attn.forward(std::move(x), attend)); });
  return residual(std::move(src), norm2, norm_first_,
                  [&](Tensor x) { return feed_forward(std::move(x)); });
}

TransformerDecoderLayer::TransformerDecoderLayer(const TransformerOptions& o,
                                                 GeneratorRef generator)
    : self_attn(checked("TransformerDecoderLayer", o).d_model, o.nhead, o.dropout, o.bias,
                generator),
      multihead_attn(o.d_model, o.nhead, o.dropout, o.bias, generator),
      linear1(o.d_model, o.dim_feedforward, o.bias),
      linear2(o.dim_feedforward, o.d_model, o.bias),
      norm1(o.d_model, o.layer_norm_eps, o.bias),
      norm2(o.d_model, o.layer_norm_eps, o.bias),
      norm3(o.d_model, o.layer_norm_eps, o.bias),
      dropout(o.dropout, generator),
      activation_(o.activation),
      norm_first_(o.norm_first) {
  register_module("self_attn", self_attn);
  register_module("multihead_attn", multihead_attn);
  register_module("linear1", linear1);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("norm3", norm3);
  register_module("dropout", dropout);
}

Tensor TransformerDecoderLayer::feed_forward(Tensor x) {
  return dropout(linear2(dropout(activation_(linear1(std::move(x))))));
}

Tensor TransformerDecoderLayer::forward(Tensor tgt, Tensor memory, const Attend& to_target,
                                        const Attend& to_memory) {
  tgt = residual(std::move(tgt), norm1, norm_first_,
                 [&](Tensor x) { return dropout(self_attn.forward(std::move(x), to_target)); });
  tgt = residual(std::move(tgt), norm2, norm_first_, [&](Tensor x) {
    return dropout(multihead_attn.forward(std::move(x), memory, memory, to_memory));
  });
  memory = {};
  return residual(std::move(tgt), norm3, norm_first_,
                  [&](Tensor x) { return feed_forward(std::move(x)); });
}

// ---- stacks ------------------------------------------------------------------------------------
namespace {

void check_no_cache(const char* module, const Attend& attend) {
  check(!attend.cache, module, "a cache is one layer's: give each layer its own");
}

}  // namespace

TransformerEncoder::TransformerEncoder(const TransformerOptions& o, int num_layers, bool norm,
                                       GeneratorRef generator) {
  check_positive("TransformerEncoder", {{"num_layers", num_layers}});
  for (int i = 0; i < num_layers; ++i) {
    layers_.push_back(std::make_unique<TransformerEncoderLayer>(o, generator));
    register_module(fmt::format("layers.{}", i), *layers_.back());
  }
  if (norm) register_module("norm", norm_.emplace(o.d_model, o.layer_norm_eps, o.bias));
}

Tensor TransformerEncoder::forward(Tensor src, const Attend& attend) {
  check_no_cache("TransformerEncoder", attend);
  src = through_layers(layers_, layers_per_segment(), std::move(src),
                       [&](auto& layer, Tensor x) { return layer.forward(std::move(x), attend); });
  return norm_ ? (*norm_)(std::move(src)) : src;
}

TransformerDecoder::TransformerDecoder(const TransformerOptions& o, int num_layers, bool norm,
                                       GeneratorRef generator) {
  check_positive("TransformerDecoder", {{"num_layers", num_layers}});
  for (int i = 0; i < num_layers; ++i) {
    layers_.push_back(std::make_unique<TransformerDecoderLayer>(o, generator));
    register_module(fmt::format("layers.{}", i), *layers_.back());
  }
  if (norm) register_module("norm", norm_.emplace(o.d_model, o.layer_norm_eps, o.bias));
}

Tensor TransformerDecoder::forward(Tensor tgt, const Tensor& memory, const Attend& to_target,
                                   const Attend& to_memory) {
  check_no_cache("TransformerDecoder", to_target);
  check_no_cache("TransformerDecoder", to_memory);
  tgt = through_layers(layers_, layers_per_segment(), std::move(tgt), [&](auto& layer, Tensor x) {
    return layer.forward(std::move(x), memory, to_target, to_memory);
  });
  return norm_ ? (*norm_)(std::move(tgt)) : tgt;
}

Transformer::Transformer(const TransformerOptions& options, int num_encoder_layers,
                         int num_decoder_layers, GeneratorRef generator)
    : encoder(checked("Transformer", options), num_encoder_layers, true, generator),
      decoder(options, num_decoder_layers, true, generator) {
  register_module("encoder", encoder);
  register_module("decoder", decoder);
  for (const Tensor& p : parameters())
    if (p.rank() > 1) init::xavier_uniform_(p);
}

Tensor Transformer::forward(Tensor src, Tensor tgt, const Attend& to_source,
                            const Attend& to_target, const Attend& to_memory) {
  check<ShapeError>(src.rank() == 3 && tgt.rank() == 3 && src.size(0) == tgt.size(0), "Transformer",
                    "needs src [N, T, E] and tgt [N, S, E], got {} and {}", src, tgt);
  const Tensor memory = encoder.forward(std::move(src), to_source);
  return decoder.forward(std::move(tgt), memory, to_target, to_memory);
}

}  // namespace rw
