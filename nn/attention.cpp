#include "nn/attention.h"

namespace rw {

MultiheadAttention::MultiheadAttention(int64_t hidden, int64_t heads,
                                       const MultiheadAttentionOptions& options,
                                       GeneratorRef generator)
    : query(hidden, hidden),
      key(hidden, hidden),
      value(hidden, hidden),
      dense(hidden, hidden),
      heads_(heads),
      options_(options),
      generator_(generator) {
  check(heads > 0 && hidden % heads == 0, "MultiheadAttention",
        "the heads must divide the hidden size, got {} heads for {}", heads, hidden);
  register_module("self.query", query);
  register_module("self.key", key);
  register_module("self.value", value);
  register_module("output.dense", dense);
}

Tensor MultiheadAttention::forward(const Tensor& x, const Tensor& mask, const Tensor& lengths) {
  check<ShapeError>(x.rank() == 3, "MultiheadAttention", "x must be [N, S, hidden], got {}",
                    x.str());
  const int64_t n = x.size(0), length = x.size(1);
  const auto heads = [&](const Tensor& t) {  // [N, S, hidden] as [N, heads, S, hidden / heads]
    return transpose(reshape(t, {n, length, heads_, t.size(2) / heads_}), 1, 2);
  };
  const AttentionOptions options{.causal = options_.causal,
                                 .dropout = is_training() ? options_.dropout : 0,
                                 .generator = &generator_.get()};
  const Tensor y =
      rw::attention(heads(query(x)), heads(key(x)), heads(value(x)), options, mask, lengths);
  return dense(reshape(transpose(y, 1, 2), {n, length, x.size(2)}));
}

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerLayerOptions& o,
                                                 GeneratorRef generator)
    : attention(o.hidden, o.heads, {o.attention_dropout, o.causal}, generator),
      attention_norm(o.hidden, o.norm_eps),
      intermediate(o.hidden, o.intermediate),
      output(o.intermediate, o.hidden),
      output_norm(o.hidden, o.norm_eps),
      dropout_(o.dropout, generator),
      pre_norm_(o.pre_norm) {
  register_module("attention", attention);
  register_module("attention.output.LayerNorm", attention_norm);
  register_module("intermediate.dense", intermediate);
  register_module("output.dense", output);
  register_module("output.LayerNorm", output_norm);
  register_module("dropout", dropout_);
}

Tensor TransformerEncoderLayer::forward(Tensor x, const Tensor& mask, const Tensor& lengths) {
  const auto attend = [&](const Tensor& h) {
    return dropout_(attention.forward(h, mask, lengths));
  };
  const auto feed_forward = [&](const Tensor& h) {
    return dropout_(output(gelu(intermediate(h))));
  };
  if (pre_norm_) {
    x = x + attend(attention_norm(x));
    return x + feed_forward(output_norm(x));
  }
  x = attention_norm(x + attend(x));
  return output_norm(x + feed_forward(x));
}

}  // namespace rw
