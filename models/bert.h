// BERT (Devlin et al. 2019): post-norm encoder, erf GELU, decoder tied to the word embeddings.
// Parameters have the names of Hugging Face's classes of the same name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../nn/layers.h"
#include "../nn/norm.h"
#include "../nn/transformer/attention.h"

namespace rw {

// Members and defaults are those of Hugging Face's config.json: bert-base-uncased.
struct BertConfig {
  int64_t vocab_size = 30522;  // tokens of the vocabulary
  // Elements per token, layers, and heads of each; the heads divide the elements (ValueError).
  int64_t hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12;

  int64_t intermediate_size = 3072;  // elements between a layer's two linear layers
  // Longest sequence, and kinds of token_types.
  int64_t max_position_embeddings = 512, type_vocab_size = 2;
  // The dropout of each half of a layer, and of the attention's weights.
  double hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1;

  double layer_norm_eps = 1e-12;    // of all layer norms
  double initializer_range = 0.02;  // standard deviation of initial weights

  // The elements of all matrices; norms and biases are few beside them.
  int64_t matrix_elements() const {
    const int64_t layer = 4 * hidden_size * hidden_size + 2 * hidden_size * intermediate_size;
    const int64_t rows = vocab_size + max_position_embeddings + type_vocab_size;
    return num_hidden_layers * layer + rows * hidden_size;
  }
  // tiny, mini, small, medium (Turc et al. 2019), base or large. Throws ValueError.
  static BertConfig preset(const std::string& name);
};

// A batch of N token sequences, padded to S.
struct BertInput {
  Tensor ids;               // i32 [N, S]
  Tensor token_types = {};  // i32 [N, S]; undefined: all 0
  Tensor lengths = {};      // i32 [N], tokens that are not padding; undefined: all of S
};

// Embeddings and layers, and a pooler unless left out.
class BertModel : public Module {
 public:
  // ValueError for sizes that are not positive or do not go together.
  explicit BertModel(const BertConfig& config, bool pooler = true);

  // -> [N, S, hidden]. ShapeError for ids of another rank, or S beyond max_position_embeddings.
  Tensor forward(const BertInput& input);
  // tanh of a linear layer of the first token: hidden [N, S, hidden] -> [N, hidden]. ValueError
  // without a pooler.
  Tensor pool(const Tensor& hidden);

  const BertConfig& config() const { return config_; }  // as given to the constructor
  // The word embeddings [vocab_size, hidden], to which the decoder is tied.
  const Tensor& word_table() const { return words_.weight; }

 private:
  Tensor embed(const BertInput& input);

  BertConfig config_;
  Embedding words_, positions_, token_types_;
  LayerNorm norm_;
  Dropout dropout_;
  std::vector<std::unique_ptr<BertLayer>> layers_;
  std::optional<Linear> pooler_;
};

// Masked-language-model head and, unless left out, next-sentence prediction.
class BertForPreTraining : public Module {
 public:
  explicit BertForPreTraining(const BertConfig& config, bool next_sentence = true);

  Tensor forward(const BertInput& input) { return bert.forward(input); }  // -> [N, S, hidden]
  // Scores of the vocabulary at some tokens; `positions` i32 [P] count in the N * S tokens. [P, V].
  Tensor token_logits(const Tensor& hidden, const Tensor& positions);
  // Mean cross entropy of `targets` i32 [P] at `positions`, without the [P, V] logits in memory.
  // `predicted` receives the best token of each, i32 [P].
  Tensor token_loss(const Tensor& hidden, const Tensor& positions, const Tensor& targets,
                    Tensor* predicted = nullptr);
  // Class 0 means that the second text follows the first. [N, 2]. ValueError if that head was left
  // out.
  Tensor next_sentence_logits(const Tensor& hidden);

  BertModel bert;  // the encoder

 private:
  Tensor transform(const Tensor& hidden, const Tensor& positions);  // -> [P, hidden]

  Tensor bias_;  // [vocab]
  Linear dense_;
  LayerNorm norm_;
  std::optional<Linear> seq_relationship_;
};

// A linear layer on the pooled first token, with dropout.
class BertForSequenceClassification : public Module {
 public:
  BertForSequenceClassification(const BertConfig& config, int64_t classes);
  Tensor forward(const BertInput& input);  // -> [N, classes]

  BertModel bert;  // the encoder, with a pooler

 private:
  Dropout dropout_;
  Linear classifier_;
};

}  // namespace rw
