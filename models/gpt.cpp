#include "models/gpt.h"

#include <cmath>
#include <tuple>

#include "nn/init.h"
#include "nn/layer_stack.h"
#include "ops/autocast.h"
#include "ops/layout/unbind.h"
#include "ops/operators.h"

namespace rw {

namespace {

const GptConfig& checked(const GptConfig& c) {
  check(c.vocab_size > 0 && c.n_positions > 0 && c.n_embd > 0 && c.n_layer > 0 && c.n_head > 0 &&
            c.n_inner >= 0,
        "GptConfig", "all sizes must be positive");
  check(c.n_embd % c.n_head == 0, "GptConfig", "n_head must divide n_embd, got {} and {}", c.n_head,
        c.n_embd);
  return c;
}

// Weights are normal; those that add to the residual stream are smaller by the number of additions.
// Biases are zero, and the norms' weights stay one.
void init_weights(const Module& module, const GptConfig& config) {
  const double residual =
      config.initializer_range / std::sqrt(2 * static_cast<double>(config.n_layer));
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (parameter.rank() > 1)
      init::normal_(parameter, 0,
                    static_cast<float>(name.ends_with("c_proj.weight") ? residual
                                                                       : config.initializer_range));
    else if (name.ends_with("bias"))
      init::zeros_(parameter);
  }
}

}  // namespace

GptConfig GptConfig::preset(const std::string& name) {
  struct Preset {
    const char* name;
    int64_t layers, hidden, heads;
  };
  for (const Preset& p : {Preset{"gpt2", 12, 768, 12}, Preset{"gpt2-medium", 24, 1024, 16},
                          Preset{"gpt2-large", 36, 1280, 20}, Preset{"gpt2-xl", 48, 1600, 25}}) {
    if (name == p.name) return {.n_embd = p.hidden, .n_layer = p.layers, .n_head = p.heads};
  }
  fail("GptConfig", "there are gpt2, gpt2-medium, gpt2-large and gpt2-xl, not '{}'", name);
}

// x + attention(norm(x)), then x + mlp(norm(x)): [N, S, n_embd] -> the same.
class GptModel::Block : public Module {
 public:
  explicit Block(const GptConfig& config);
  // With a cache, x comes after the tokens in the cache.
  Tensor forward(Tensor x, KeyValueCache* cache, const Tensor& starts);

 private:
  Tensor attend(Tensor x, KeyValueCache* cache, const Tensor& starts);

  LayerNorm ln_1_;
  Linear c_attn_, attn_proj_;  // attn.c_attn makes query, key and value; attn.c_proj
  LayerNorm ln_2_;
  Linear c_fc_, mlp_proj_;  // mlp.c_fc, mlp.c_proj
  Dropout dropout_;
  int64_t heads_;
  float attention_dropout_;
};

GptModel::Block::Block(const GptConfig& c)
    : ln_1_(checked(c).n_embd, static_cast<float>(c.layer_norm_epsilon)),
      c_attn_(c.n_embd, 3 * c.n_embd),
      attn_proj_(c.n_embd, c.n_embd),
      ln_2_(c.n_embd, static_cast<float>(c.layer_norm_epsilon)),
      c_fc_(c.n_embd, c.inner()),
      mlp_proj_(c.inner(), c.n_embd),
      dropout_(static_cast<float>(c.resid_pdrop)),
      heads_(c.n_head),
      attention_dropout_(static_cast<float>(c.attn_pdrop)) {
  register_module("ln_1", ln_1_);
  register_module("attn.c_attn", c_attn_);
  register_module("attn.c_proj", attn_proj_);
  register_module("ln_2", ln_2_);
  register_module("mlp.c_fc", c_fc_);
  register_module("mlp.c_proj", mlp_proj_);
  register_module("dropout", dropout_);
}

Tensor GptModel::Block::attend(Tensor x, KeyValueCache* cache, const Tensor& starts) {
  const int64_t n = x.size(0), length = x.size(1), hidden = x.size(2);
  std::vector<Tensor> qkv =
      unbind(reshape(c_attn_(std::move(x)), {n, length, 3, heads_, hidden / heads_}), 2);
  for (Tensor& part : qkv) part = transpose(std::move(part), 1, 2);
  if (cache) std::tie(qkv[1], qkv[2]) = cache->append(qkv[1], qkv[2]);
  Tensor y = attention(std::move(qkv[0]), std::move(qkv[1]), std::move(qkv[2]),
                       {.causal = true,
                        .dropout = is_training() ? attention_dropout_ : 0,
                        .lower_right = cache != nullptr,
                        .starts = starts});
  return attn_proj_(reshape(transpose(std::move(y), 1, 2), {n, length, hidden}));
}

Tensor GptModel::Block::forward(Tensor x, KeyValueCache* cache, const Tensor& starts) {
  Tensor more = dropout_(attend(ln_1_(x), cache, starts));
  x = add(std::move(x), std::move(more));
  more = dropout_(mlp_proj_(gelu_tanh(c_fc_(ln_2_(x)))));
  return add(std::move(x), std::move(more));
}

GptModel::GptModel(const GptConfig& c)
    : wte(checked(c).vocab_size, c.n_embd),
      wpe(c.n_positions, c.n_embd),
      config_(c),
      dropout_(static_cast<float>(c.embd_pdrop)),
      ln_f_(c.n_embd, static_cast<float>(c.layer_norm_epsilon)) {
  register_module("wte", wte);
  register_module("wpe", wpe);
  register_module("drop", dropout_);
  for (int64_t i = 0; i < c.n_layer; ++i) {
    blocks_.push_back(std::make_unique<Block>(c));
    register_module(fmt::format("h.{}", i), *blocks_.back());
  }
  register_module("ln_f", ln_f_);
  init_weights(*this, c);
}

GptModel::~GptModel() = default;

KeyValueCaches GptModel::make_caches(int64_t batch, int64_t longest) const {
  KeyValueCaches caches;
  const DType dtype = Autocast::input(wte.weight.detach()).dtype();
  for (int64_t i = 0; i < config_.n_layer; ++i)
    caches.emplace_back(batch, config_.n_head, longest, config_.n_embd / config_.n_head, dtype);
  return caches;
}

Tensor GptModel::forward(Tensor ids, KeyValueCaches* caches, const Tensor& starts,
                         const Tensor& positions) {
  check<ShapeError>(ids.rank() == 2, "GptModel", "ids must be [N, S], got {}", ids);
  check<ShapeError>(!caches || caches->size() == blocks_.size(), "GptModel",
                    "needs {} caches, one for each layer, got {}", blocks_.size(),
                    caches ? caches->size() : 0);
  const int64_t past = caches ? caches->front().length() : 0, length = ids.size(1);
  check<ShapeError>(past + length <= config_.n_positions, "GptModel",
                    "the model has positions for {} tokens, got {} after {}", config_.n_positions,
                    length, past);
  Tensor places = positions ? wpe(positions) : slice(wpe.weight, 0, past, past + length);
  Tensor x = wte(std::move(ids)) + std::move(places);
  // The sum is f32; the residual stream of the layers has the dtype of their matrix products.
  x = Autocast::input(dropout_(std::move(x)));
  size_t layer = 0;
  x = through_layers(blocks_, layers_per_segment(), std::move(x), [&](Block& block, Tensor h) {
    KeyValueCache* cache = caches ? &(*caches)[layer++] : nullptr;
    return block.forward(std::move(h), cache, starts);
  });
  return ln_f_(std::move(x));
}

GptLMHeadModel::GptLMHeadModel(const GptConfig& config) : transformer(config) {
  register_module("transformer", transformer);
}

}  // namespace rw
