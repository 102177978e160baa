#include "nn/transformer/attention.h"

namespace rw {

namespace {

// Runs first in a member initializer list, before the members check the same sizes under their own
// names.
int64_t checked_sizes(const char* module,
                      std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  check_positive(module, sizes);
  return sizes.begin()->second;
}

}  // namespace

BertAttention::BertAttention(int64_t hidden, int64_t heads, float dropout, bool causal,
                             GeneratorRef generator)
    : query(checked_sizes("BertAttention", {{"hidden", hidden}, {"heads", heads}}), hidden),
      key(hidden, hidden),
      value(hidden, hidden),
      dense(hidden, hidden),
      heads_(heads),
      dropout_(dropout),
      causal_(causal),
      generator_(generator) {
  check(hidden % heads == 0, "BertAttention",
        "the heads must divide the hidden size, got {} heads for {}", heads, hidden);
  register_module("self.query", query);
  register_module("self.key", key);
  register_module("self.value", value);
  register_module("output.dense", dense);
}

Tensor BertAttention::forward(Tensor x, const Tensor& mask, const Tensor& lengths) {
  check<ShapeError>(x.rank() == 3, "BertAttention", "x must be [N, S, hidden], got {}", x);
  const int64_t n = x.size(0), length = x.size(1), hidden = x.size(2);
  const auto heads = [&](Tensor t) {  // [N, S, hidden] as [N, heads, S, hidden / heads]
    return transpose(reshape(std::move(t), {n, length, heads_, hidden / heads_}), 1, 2);
  };
  const AttentionOptions options{
      .causal = causal_, .dropout = is_training() ? dropout_ : 0, .generator = &generator_.get()};
  Tensor q = heads(query(x)), k = heads(key(x)), v = heads(value(std::move(x)));
  Tensor y = rw::attention(std::move(q), std::move(k), std::move(v), options, mask, lengths);
  return dense(reshape(transpose(std::move(y), 1, 2), {n, length, hidden}));
}

BertLayer::BertLayer(const BertLayerOptions& o, GeneratorRef generator)
    : attention(checked_sizes(
                    "BertLayer",
                    {{"hidden", o.hidden}, {"heads", o.heads}, {"intermediate", o.intermediate}}),
                o.heads, o.attention_dropout, o.causal, generator),
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

Tensor BertLayer::forward(Tensor x, const Tensor& mask, const Tensor& lengths) {
  const auto attend = [&](Tensor h) {
    return dropout_(attention.forward(std::move(h), mask, lengths));
  };
  const auto feed_forward = [&](Tensor h) {
    return dropout_(output(gelu(intermediate(std::move(h)))));
  };
  if (pre_norm_) {
    Tensor more = attend(attention_norm(x));
    x = add(std::move(x), std::move(more));
    more = feed_forward(output_norm(x));
    return add(std::move(x), std::move(more));
  }
  Tensor more = attend(x);
  x = attention_norm(add(std::move(x), std::move(more)));
  more = feed_forward(x);
  return output_norm(add(std::move(x), std::move(more)));
}

}  // namespace rw
