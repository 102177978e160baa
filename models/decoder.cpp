#include "models/decoder.h"

#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "nn/init.h"
#include "nn/layer_stack.h"
#include "ops/autocast.h"
#include "ops/numeric.h"
#include "ops/operators.h"

namespace rw {

namespace {

const DecoderConfig& checked(const DecoderConfig& c) {
  c.check();
  return c;
}

// Matrices are normal, biases zero; the norms' weights stay as they are.
void set_weights(Module& module, const DecoderConfig& c, DType dtype) {
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (parameter.rank() > 1)
      init::normal_(parameter, 0, static_cast<float>(c.initializer_range));
    else if (name.ends_with("bias"))
      init::zeros_(parameter);
  }
  if (dtype != DType::f32) module.to(dtype);
}

float norm_offset(const DecoderConfig& c) {
  return c.is_gemma() ? 1 : 0;
}

bool has_query_bias(const DecoderConfig& c) {
  return c.attention_bias || c.model_type == "qwen2";
}

RotaryOptions rotation_of(const RotarySchedule& schedule) {
  const PurposeScope purpose(Purpose::parameter);
  const auto pairs = static_cast<int64_t>(schedule.frequencies.size());
  return {.frequencies = tensor(schedule.frequencies, {pairs}), .scale = schedule.scale};
}

Tensor normed(std::optional<RMSNorm>& norm, Tensor x) {
  return norm ? (*norm)(std::move(x)) : x;
}

}  // namespace

// Where texts lie in rows; both are undefined if each row is one text.
struct Decoder::Texts {
  Tensor starts, positions;
};

// x + attention(norm(x)), then x + mlp(norm(x)): [N, S, hidden_size] -> the same.
class Decoder::Layer : public Module {
 public:
  Layer(const DecoderConfig& c, const RotaryOptions& rotation, int64_t window);
  // With a cache, x comes after the tokens in the cache. The MLP takes `rows` tokens at a time.
  Tensor forward(Tensor x, KeyValueCache* cache, const Texts& texts, int64_t rows);

 private:
  void add_norm(std::optional<RMSNorm>& norm, const char* name, const DecoderConfig& c,
                int64_t size);
  Tensor attend(const Tensor& x, KeyValueCache* cache, const Texts& texts);
  Tensor with_mlp(Tensor x);

  const RotaryOptions& rotation_;
  AttentionOptions options_;
  int64_t heads_, key_heads_, dim_;
  bool has_gelu_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_, gate_proj_, up_proj_, down_proj_;
  // A family has some of these.
  std::optional<RMSNorm> q_norm_, k_norm_, before_attention_, after_attention_, before_mlp_,
      after_mlp_;
};

Decoder::Layer::Layer(const DecoderConfig& c, const RotaryOptions& rotation, int64_t window)
    : rotation_(rotation),
      options_{.causal = true, .window = window},
      heads_(c.num_attention_heads),
      key_heads_(c.num_key_value_heads),
      dim_(c.heads_dim()),
      has_gelu_(c.hidden_act != "silu"),
      q_proj_(c.hidden_size, heads_ * dim_, has_query_bias(c)),
      k_proj_(c.hidden_size, key_heads_ * dim_, has_query_bias(c)),
      v_proj_(c.hidden_size, key_heads_ * dim_, has_query_bias(c)),
      o_proj_(heads_ * dim_, c.hidden_size, c.attention_bias && c.model_type != "qwen2"),
      gate_proj_(c.hidden_size, c.intermediate_size, c.mlp_bias),
      up_proj_(c.hidden_size, c.intermediate_size, c.mlp_bias),
      down_proj_(c.intermediate_size, c.hidden_size, c.mlp_bias) {
  if (c.query_pre_attn_scalar > 0)
    options_.scale = static_cast<float>(1 / std::sqrt(c.query_pre_attn_scalar));
  register_module("self_attn.q_proj", q_proj_);
  register_module("self_attn.k_proj", k_proj_);
  register_module("self_attn.v_proj", v_proj_);
  register_module("self_attn.o_proj", o_proj_);
  const bool is_gemma3 = c.model_type == "gemma3_text";
  if (is_gemma3 || c.model_type == "qwen3") {
    add_norm(q_norm_, "self_attn.q_norm", c, dim_);
    add_norm(k_norm_, "self_attn.k_norm", c, dim_);
  }
  register_module("mlp.gate_proj", gate_proj_);
  register_module("mlp.up_proj", up_proj_);
  register_module("mlp.down_proj", down_proj_);
  add_norm(before_attention_, "input_layernorm", c, c.hidden_size);
  add_norm(is_gemma3 ? after_attention_ : before_mlp_, "post_attention_layernorm", c,
           c.hidden_size);
  if (!is_gemma3) return;
  add_norm(before_mlp_, "pre_feedforward_layernorm", c, c.hidden_size);
  add_norm(after_mlp_, "post_feedforward_layernorm", c, c.hidden_size);
}

void Decoder::Layer::add_norm(std::optional<RMSNorm>& norm, const char* name,
                              const DecoderConfig& c, int64_t size) {
  register_module(name, norm.emplace(size, static_cast<float>(c.rms_norm_eps), norm_offset(c)));
}

Tensor Decoder::Layer::attend(const Tensor& x, KeyValueCache* cache, const Texts& texts) {
  const int64_t n = x.size(0), length = x.size(1), past = cache ? cache->length() : 0;
  const auto split = [&](Linear& proj, int64_t heads) {
    return reshape(proj(x), {n, length, heads, dim_});
  };
  RotaryOptions rotation = rotation_;
  rotation.offset = past;
  rotation.positions = texts.positions;
  const auto turned = [&](Tensor t) { return rotary(transpose(std::move(t), 1, 2), rotation); };
  Tensor q = turned(normed(q_norm_, split(q_proj_, heads_)));
  Tensor k = turned(normed(k_norm_, split(k_proj_, key_heads_)));
  Tensor v = transpose(split(v_proj_, key_heads_), 1, 2);
  if (cache) std::tie(k, v) = cache->append(k, v);
  AttentionOptions options = options_;
  options.lower_right = cache != nullptr;
  options.starts = texts.starts;
  Tensor y = attention(std::move(q), std::move(k), std::move(v), options);
  return o_proj_(reshape(transpose(std::move(y), 1, 2), {n, length, heads_ * dim_}));
}

Tensor Decoder::Layer::with_mlp(Tensor x) {
  Tensor h = (*before_mlp_)(x), gate = gate_proj_(h), up = up_proj_(std::move(h));
  Tensor more = down_proj_(has_gelu_ ? geglu(std::move(gate), std::move(up))
                                     : swiglu(std::move(gate), std::move(up)));
  return add(std::move(x), normed(after_mlp_, std::move(more)));
}

Tensor Decoder::Layer::forward(Tensor x, KeyValueCache* cache, const Texts& texts, int64_t rows) {
  Tensor more = normed(after_attention_, attend((*before_attention_)(x), cache, texts));
  x = add(std::move(x), std::move(more));
  return by_rows(std::move(x), rows, [&](Tensor part) { return with_mlp(std::move(part)); });
}

Decoder::Decoder(const DecoderConfig& c, DType dtype)
    : config_(checked(c)),
      global_(rotation_of(c.rotary())),
      local_(rotation_of(c.rotary(c.model_type == "gemma3_text"))),
      embed_tokens_(c.vocab_size, c.hidden_size),
      norm_(c.hidden_size, static_cast<float>(c.rms_norm_eps), norm_offset(c)) {
  // The head comes first: its f32 values are large, and no other parameters are there yet.
  if (!c.tie_word_embeddings) {
    lm_head_ = std::make_unique<Linear>(c.hidden_size, c.vocab_size, false);
    set_weights(*lm_head_, c, dtype);
  }
  set_weights(embed_tokens_, c, dtype);
  register_module("model.embed_tokens", embed_tokens_);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const bool slides = c.has_window(i);
    layers_.push_back(
        std::make_unique<Layer>(c, slides ? local_ : global_, slides ? c.sliding_window : 0));
    set_weights(*layers_.back(), c, dtype);
    register_module(fmt::format("model.layers.{}", i), *layers_.back());
  }
  set_weights(norm_, c, dtype);
  register_module("model.norm", norm_);
  if (lm_head_) register_module("lm_head", *lm_head_);
}

Decoder::~Decoder() = default;

const BlockMatrix* Decoder::head_blocks() const {
  if (lm_head_) {
    const auto* blocks = dynamic_cast<const BlockLinear*>(lm_head_->substitute());
    return blocks ? &blocks->weight() : nullptr;
  }
  const auto* blocks = dynamic_cast<const BlockEmbedding*>(embed_tokens_.substitute());
  return blocks ? &blocks->weight() : nullptr;
}

void Decoder::set_mlp_rows(int64_t rows) {
  check(rows >= 0, "set_mlp_rows", "MLPs take one token at a time or more, got {}", rows);
  mlp_rows_ = rows;
}

DType Decoder::dtype() const {
  const auto* blocks = dynamic_cast<const BlockEmbedding*>(embed_tokens_.substitute());
  return blocks ? blocks->dtype() : embed_tokens_.weight.dtype();
}

KeyValueCaches Decoder::make_caches(int64_t batch, int64_t longest) const {
  KeyValueCaches caches;
  const DType dtype = Autocast::input(empty({1}, this->dtype())).dtype();
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i)
    caches.emplace_back(batch, config_.num_key_value_heads, longest, config_.heads_dim(), dtype);
  return caches;
}

Tensor Decoder::hidden(Tensor ids, KeyValueCaches* caches, const Tensor& starts) {
  check<ShapeError>(ids.rank() == 2, "Decoder", "ids must be [N, S], got {}", ids);
  check<ShapeError>(!caches || caches->size() == layers_.size(), "Decoder",
                    "needs {} caches, one for each layer, got {}", layers_.size(),
                    caches ? caches->size() : 0);
  const int64_t past = caches ? caches->front().length() : 0, length = ids.size(1);
  check<ShapeError>(past + length <= longest(), "Decoder",
                    "the model has positions for {} tokens, got {} after {}", longest(), length,
                    past);
  Texts texts;
  if (starts) texts = {starts, positions_of(ids, caches, starts)};
  Tensor x = embed_tokens_(std::move(ids));
  if (config_.is_gemma()) {  // the factor is rounded to the dtype of the embeddings, as published
    const double root = std::sqrt(static_cast<double>(config_.hidden_size));
    const Tensor scale =
        full({1}, static_cast<float>(root), x.dtype(), x.device().shared_from_this());
    x = mul(std::move(x), scale);
  }
  // The embeddings are f32; the residual stream of the layers has the dtype of their products.
  x = Autocast::input(std::move(x));
  size_t index = 0;
  x = through_layers(layers_, layers_per_segment(), std::move(x), [&](Layer& layer, Tensor h) {
    KeyValueCache* cache = caches ? &(*caches)[index++] : nullptr;
    return layer.forward(std::move(h), cache, texts, mlp_rows_);
  });
  return norm_(std::move(x));
}

}  // namespace rw
