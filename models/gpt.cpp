#include "models/gpt.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "core/autograd/checkpoint.h"
#include "nn/init.h"
#include "nn/layer_stack.h"
#include "ops/autocast.h"
#include "ops/layout/indexing.h"
#include "ops/layout/unbind.h"
#include "ops/losses/losses.h"
#include "ops/operators.h"

namespace rw {

namespace {

float to_float(double value) {
  return static_cast<float>(value);
}

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
      init::normal_(
          parameter, 0,
          to_float(name.ends_with("c_proj.weight") ? residual : config.initializer_range));
    else if (name.ends_with("bias"))
      init::zeros_(parameter);
  }
}

// The module is in evaluation mode while this lives.
class EvalScope {
 public:
  explicit EvalScope(Module& module) : module_(module), was_training_(module.is_training()) {
    module.eval();
  }
  ~EvalScope() { module_.train(was_training_); }
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  Module& module_;
  bool was_training_;
};

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

GptBlock::GptBlock(const GptConfig& c)
    : ln_1_(checked(c).n_embd, to_float(c.layer_norm_epsilon)),
      c_attn_(c.n_embd, 3 * c.n_embd),
      attn_proj_(c.n_embd, c.n_embd),
      ln_2_(c.n_embd, to_float(c.layer_norm_epsilon)),
      c_fc_(c.n_embd, c.inner()),
      mlp_proj_(c.inner(), c.n_embd),
      dropout_(to_float(c.resid_pdrop)),
      heads_(c.n_head),
      attention_dropout_(to_float(c.attn_pdrop)) {
  register_module("ln_1", ln_1_);
  register_module("attn.c_attn", c_attn_);
  register_module("attn.c_proj", attn_proj_);
  register_module("ln_2", ln_2_);
  register_module("mlp.c_fc", c_fc_);
  register_module("mlp.c_proj", mlp_proj_);
  register_module("dropout", dropout_);
}

Tensor GptBlock::attend(Tensor x, KeyValueCache* cache) {
  const int64_t n = x.size(0), length = x.size(1), hidden = x.size(2);
  std::vector<Tensor> qkv =
      unbind(reshape(c_attn_(std::move(x)), {n, length, 3, heads_, hidden / heads_}), 2);
  for (Tensor& part : qkv) part = transpose(std::move(part), 1, 2);
  if (cache) std::tie(qkv[1], qkv[2]) = cache->append(qkv[1], qkv[2]);
  Tensor y = attention(std::move(qkv[0]), std::move(qkv[1]), std::move(qkv[2]),
                       {.causal = true,
                        .dropout = is_training() ? attention_dropout_ : 0,
                        .lower_right = cache != nullptr});
  return attn_proj_(reshape(transpose(std::move(y), 1, 2), {n, length, hidden}));
}

Tensor GptBlock::forward(Tensor x, KeyValueCache* cache) {
  Tensor more = dropout_(attend(ln_1_(x), cache));
  x = add(std::move(x), std::move(more));
  more = dropout_(mlp_proj_(gelu_tanh(c_fc_(ln_2_(x)))));
  return add(std::move(x), std::move(more));
}

GptModel::GptModel(const GptConfig& c)
    : wte(checked(c).vocab_size, c.n_embd),
      wpe(c.n_positions, c.n_embd),
      config_(c),
      dropout_(to_float(c.embd_pdrop)),
      ln_f_(c.n_embd, to_float(c.layer_norm_epsilon)) {
  register_module("wte", wte);
  register_module("wpe", wpe);
  register_module("drop", dropout_);
  for (int64_t i = 0; i < c.n_layer; ++i) {
    blocks_.push_back(std::make_unique<GptBlock>(c));
    register_module(fmt::format("h.{}", i), *blocks_.back());
  }
  register_module("ln_f", ln_f_);
  init_weights(*this, c);
  if (checkpoints_blocks()) set_checkpoint(1);
}

void GptModel::set_checkpoint(int every) {
  check_checkpoint_every(every);
  checkpoint_every_ = every;
}

KeyValueCaches GptModel::make_caches(int64_t batch, int64_t longest) const {
  KeyValueCaches caches;
  const DType dtype = Autocast::input(wte.weight.detach()).dtype();
  for (int64_t i = 0; i < config_.n_layer; ++i)
    caches.emplace_back(batch, config_.n_head, longest, config_.n_embd / config_.n_head, dtype);
  return caches;
}

Tensor GptModel::forward(Tensor ids, KeyValueCaches* caches) {
  check<ShapeError>(ids.rank() == 2, "GptModel", "ids must be [N, S], got {}", ids);
  check<ShapeError>(!caches || caches->size() == blocks_.size(), "GptModel",
                    "needs {} caches, one for each layer, got {}", blocks_.size(),
                    caches ? caches->size() : 0);
  const int64_t past = caches ? caches->front().length() : 0, length = ids.size(1);
  check<ShapeError>(past + length <= config_.n_positions, "GptModel",
                    "the model has positions for {} tokens, got {} after {}", config_.n_positions,
                    length, past);
  Tensor x = wte(std::move(ids)) + slice(wpe.weight, 0, past, past + length);
  // The sum is f32; the residual stream of the layers has the dtype of their matrix products.
  x = Autocast::input(dropout_(std::move(x)));
  size_t layer = 0;
  x = through_layers(blocks_, is_training() ? checkpoint_every_ : 0, std::move(x),
                     [&](GptBlock& block, Tensor h) {
                       KeyValueCache* cache = caches ? &(*caches)[layer++] : nullptr;
                       return block.forward(std::move(h), cache);
                     });
  return ln_f_(std::move(x));
}

GptLMHeadModel::GptLMHeadModel(const GptConfig& config) : transformer(config) {
  register_module("transformer", transformer);
}

Tensor GptLMHeadModel::forward(Tensor ids, KeyValueCaches* caches) {
  return linear(transformer.forward(std::move(ids), caches), transformer.wte.weight);
}

Tensor GptLMHeadModel::loss(Tensor ids, const Tensor& targets) {
  check<ShapeError>(ids.shape() == targets.shape(), "GptLMHeadModel",
                    "needs a target for each token, got {} and {}", ids, targets);
  Tensor hidden = transformer.forward(std::move(ids), nullptr);
  return tied_cross_entropy(flatten(std::move(hidden), 0, 1), transformer.wte.weight, {},
                            flatten(targets));
}

namespace {

// The index of the largest of scores [N, V] with noise -log(-log(u)). Where u is 0 the noise is
// -infinity, and any token with a chance wins over that one.
Tensor draw(const Tensor& scores, Generator& generator) {
  Tensor noise = neg(log(neg(log(rand(scores.shape(), 0, 1, DType::f32, generator)))));
  return argmax(scores + std::move(noise));
}

}  // namespace

Tensor sample_tokens(const Tensor& logits, const SampleOptions& o) {
  check<ShapeError>(logits.rank() == 2 && logits.size(1) > 0, "sample_tokens",
                    "the logits must be [N, V], got {}", logits);
  check(o.temperature >= 0 && std::isfinite(o.temperature), "sample_tokens",
        "the temperature must not be negative, got {}", o.temperature);
  check(o.top_k >= 0 && o.top_p > 0 && o.top_p <= 1, "sample_tokens",
        "top_k must not be negative and top_p be in (0, 1], got {} and {}", o.top_k, o.top_p);
  const NoGrad guard;
  if (o.temperature == 0) return argmax(logits);
  Generator& generator = o.generator ? *o.generator : default_generator();
  const Tensor scores = cast(logits, DType::f32) / o.temperature;
  if (o.top_k == 0 && o.top_p == 1) return draw(scores, generator);
  const int64_t tokens = logits.size(1), kept = o.top_k == 0 ? tokens : std::min(o.top_k, tokens);
  const SortResult likeliest = topk(scores, kept);
  // The first of the tokens that top_k keeps always stays.
  const Tensor chances = softmax(likeliest.values);
  const Tensor before = cumsum(chances, 1) - chances;
  const Tensor allowed =
      masked_fill(likeliest.values, before >= o.top_p, -std::numeric_limits<float>::infinity());
  return flatten(gather(likeliest.indices, 1, unsqueeze(draw(allowed, generator), 1)));
}

Tensor GptLMHeadModel::generate(const Tensor& ids, const GenerateOptions& o) {
  check<ShapeError>(ids.rank() == 2 && ids.numel() > 0, "generate",
                    "ids must be [N, S] and hold tokens, got {}", ids);
  check(o.max_new_tokens >= 0, "generate", "max_new_tokens must not be negative, got {}",
        o.max_new_tokens);
  const int64_t n = ids.size(0), given = ids.size(1), longest = given + o.max_new_tokens;
  check<ShapeError>(longest <= transformer.config().n_positions, "generate",
                    "the model has positions for {} tokens, got {} and {} new ones",
                    transformer.config().n_positions, given, o.max_new_tokens);
  const NoGrad guard;
  const EvalScope eval(*this);
  KeyValueCaches caches;
  if (o.use_cache) caches = transformer.make_caches(n, longest);
  Tensor all = empty({n, longest}, DType::i32);
  slice(all, 1, 0, given).copy_(ids);
  for (int64_t length = given; length < longest; ++length) {
    const int64_t first = o.use_cache ? caches[0].length() : 0;
    const Tensor hidden =
        transformer.forward(slice(all, 1, first, length), o.use_cache ? &caches : nullptr);
    const Tensor logits = linear(select(hidden, 1, -1), transformer.wte.weight);
    select(all, 1, length).copy_(sample_tokens(logits, o.sample));
  }
  return all;
}

}  // namespace rw
