#include "models/bert.h"

#include "nn/init.h"
#include "nn/layer_stack.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/operators.h"

namespace rw {

namespace {

const BertConfig& checked(const BertConfig& c) {
  check(c.vocab_size > 0 && c.hidden_size > 0 && c.num_hidden_layers > 0 &&
            c.num_attention_heads > 0 && c.intermediate_size > 0 && c.max_position_embeddings > 0 &&
            c.type_vocab_size > 0,
        "BertConfig", "all sizes must be positive");
  check(c.hidden_size % c.num_attention_heads == 0, "BertConfig",
        "num_attention_heads must divide hidden_size, got {} and {}", c.num_attention_heads,
        c.hidden_size);
  return c;
}

// Weights are normal, biases are zero, and LayerNorm's weights stay one.
void init_weights(const Module& module, const BertConfig& config) {
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (parameter.rank() > 1)
      init::normal_(parameter, 0, static_cast<float>(config.initializer_range));
    else if (name.ends_with("bias"))
      init::zeros_(parameter);
  }
}

}  // namespace

BertConfig BertConfig::preset(const std::string& name) {
  struct Preset {
    const char* name;
    int64_t layers, hidden;
  };
  for (const Preset& p :
       {Preset{"tiny", 2, 128}, Preset{"mini", 4, 256}, Preset{"small", 4, 512},
        Preset{"medium", 8, 512}, Preset{"base", 12, 768}, Preset{"large", 24, 1024}}) {
    if (name != p.name) continue;
    return {.hidden_size = p.hidden,
            .num_hidden_layers = p.layers,
            .num_attention_heads = p.hidden / 64,
            .intermediate_size = 4 * p.hidden};
  }
  fail("BertConfig", "there are tiny, mini, small, medium, base and large, not '{}'", name);
}

BertModel::BertModel(const BertConfig& config, bool pooler)
    : config_(checked(config)),
      words_(config.vocab_size, config.hidden_size),
      positions_(config.max_position_embeddings, config.hidden_size),
      token_types_(config.type_vocab_size, config.hidden_size),
      norm_(config.hidden_size, static_cast<float>(config.layer_norm_eps)),
      dropout_(static_cast<float>(config.hidden_dropout_prob)) {
  register_module("embeddings.word_embeddings", words_);
  register_module("embeddings.position_embeddings", positions_);
  register_module("embeddings.token_type_embeddings", token_types_);
  register_module("embeddings.LayerNorm", norm_);
  register_module("embeddings.dropout", dropout_);
  const BertLayerOptions layer{
      .hidden = config.hidden_size,
      .heads = config.num_attention_heads,
      .intermediate = config.intermediate_size,
      .dropout = static_cast<float>(config.hidden_dropout_prob),
      .attention_dropout = static_cast<float>(config.attention_probs_dropout_prob),
      .norm_eps = static_cast<float>(config.layer_norm_eps)};
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    register_module(fmt::format("encoder.layer.{}", i),
                    *layers_.emplace_back(std::make_unique<BertLayer>(layer)));
  if (pooler)
    register_module("pooler.dense", pooler_.emplace(config.hidden_size, config.hidden_size));
  init_weights(*this, config);
}

// The sum of the embeddings of word, position and token type, normalised, with dropout.
Tensor BertModel::embed(const BertInput& input) {
  check<ShapeError>(input.ids.rank() == 2, "BertModel", "ids must be [N, S], got {}", input.ids);
  const int64_t length = input.ids.size(1), longest = config_.max_position_embeddings;
  check<ShapeError>(length <= longest, "BertModel",
                    "the model has positions for {} tokens, got sequences of {}", longest, length);
  Tensor types =
      input.token_types ? token_types_(input.token_types) : slice(token_types_.weight, 0, 0, 1);
  Tensor x = words_(input.ids) + std::move(types) + slice(positions_.weight, 0, 0, length);
  // The sum is f32; the residual stream of the layers has the dtype of their matrix products.
  return Autocast::input(dropout_(norm_(std::move(x))));
}

Tensor BertModel::forward(const BertInput& input) {
  return through_layers(
      layers_, layers_per_segment(), embed(input),
      [&](BertLayer& layer, Tensor h) { return layer.forward(std::move(h), {}, input.lengths); });
}

Tensor BertModel::pool(const Tensor& hidden) {
  check(pooler_.has_value(), "pool", "this model was made without a pooler");
  // This is a copy, because the pooler's saved input would otherwise keep all of `hidden` for its
  // first tokens.
  return tanh(pooler_->forward(contiguous(select(hidden, 1, 0))));
}

BertForPreTraining::BertForPreTraining(const BertConfig& config, bool next_sentence)
    : bert(config, next_sentence),
      dense_(config.hidden_size, config.hidden_size),
      norm_(config.hidden_size, static_cast<float>(config.layer_norm_eps)) {
  register_module("bert", bert);
  bias_ = register_parameter("cls.predictions.bias", {config.vocab_size});
  register_module("cls.predictions.transform.dense", dense_);
  register_module("cls.predictions.transform.LayerNorm", norm_);
  if (next_sentence)
    register_module("cls.seq_relationship", seq_relationship_.emplace(config.hidden_size, 2));
  init_weights(*this, config);
}

Tensor BertForPreTraining::transform(const Tensor& hidden, const Tensor& positions) {
  return norm_(gelu(dense_(embedding(reshape(hidden, {-1, hidden.size(-1)}), positions))));
}

Tensor BertForPreTraining::token_logits(const Tensor& hidden, const Tensor& positions) {
  return linear(transform(hidden, positions), bert.word_table(), bias_);
}

Tensor BertForPreTraining::token_loss(const Tensor& hidden, const Tensor& positions,
                                      const Tensor& targets, Tensor* predicted) {
  return tied_cross_entropy(transform(hidden, positions), bert.word_table(), bias_, targets, {},
                            predicted);
}

Tensor BertForPreTraining::next_sentence_logits(const Tensor& hidden) {
  check(seq_relationship_.has_value(), "next_sentence_logits",
        "this model was made without next-sentence prediction");
  return seq_relationship_->forward(bert.pool(hidden));
}

BertForSequenceClassification::BertForSequenceClassification(const BertConfig& config,
                                                             int64_t classes)
    : bert(config),
      dropout_(static_cast<float>(config.hidden_dropout_prob)),
      classifier_(config.hidden_size, classes) {
  register_module("bert", bert);
  register_module("dropout", dropout_);
  register_module("classifier", classifier_);
  init_weights(*this, config);
}

Tensor BertForSequenceClassification::forward(const BertInput& input) {
  return classifier_(dropout_(bert.pool(bert.forward(input))));
}

}  // namespace rw
