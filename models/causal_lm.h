// Language models that predict the token after each token of a text, and texts continued by them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "../nn/adapters/block_layers.h"
#include "../nn/layers.h"
#include "../nn/transformer/kv_cache.h"

namespace rw {

using KeyValueCaches = std::vector<KeyValueCache>;  // one for each layer

// How a token is drawn.
struct SampleOptions {
  float temperature = 1;  // the logits are divided by it; 0: always the likeliest token
  int64_t top_k = 0;      // only of the k likeliest (Fan et al. 2018); 0: of all
  float top_p =
      1;  // only of the likeliest that have this probability together (Holtzman et al. 2020)
  float min_p = 0;  // only of those at least this share as likely as the likeliest (Nguyen et al.
                    // 2024)
  // Positive logits of tokens that were seen are divided by it, and negative ones multiplied
  // (Keskar et al. 2019); 1: none are.
  float repetition_penalty = 1;
  Generator* generator = nullptr;  // null: the default one
};
// How a text is continued.
struct GenerateOptions {
  int64_t max_new_tokens = 20;  // behind those that are given
  SampleOptions sample = {};    // how each is drawn
  bool use_cache = true;        // keys and values of earlier tokens are kept, not made again
  // Receives each token as it is drawn, one per text, and says whether to go on. Without it the
  // host waits for the device only at the end.
  std::function<bool(std::span<const int32_t>)> on_tokens = {};
};

// A language model: decoder layers, and a head whose logits are products with head_weight().
class CausalLM : public Module {
 public:
  // ids i32 [N, S] -> what the head receives for each token, [N, S, H]. With caches (without
  // gradients: AutogradError), the tokens come after those in the caches. Where rows hold several
  // texts, starts i32 [N, S] says for each token where in its row its text begins: it counts its
  // position from there, and sees no token before. ShapeError for another rank, another number of
  // caches, or beyond longest(); ValueError for starts together with caches.
  virtual Tensor hidden(Tensor ids, KeyValueCaches* caches, const Tensor& starts = {}) = 0;
  virtual Tensor head_weight() const = 0;  // [vocabulary, H]; undefined: it is in blocks
  virtual const BlockMatrix* head_blocks() const { return nullptr; }  // null: it is not in blocks
  // The head, if it is a module of its own; null: its weight is that of the embeddings.
  virtual Linear* head() { return nullptr; }
  int64_t vocabulary();                 // rows of the head
  virtual int64_t longest() const = 0;  // tokens that there are positions for
  // Empty caches for `batch` texts of `longest` tokens, of the dtype of the layers' products.
  virtual KeyValueCaches make_caches(int64_t batch, int64_t longest) const = 0;

  // Returns the logits [..., vocabulary] of what hidden() gives, [..., H].
  Tensor logits(Tensor states);
  // ids i32 [N, S] -> logits of the token that follows each, [N, S, vocabulary].
  Tensor forward(Tensor ids) override { return forward(std::move(ids), nullptr); }
  Tensor forward(Tensor ids, KeyValueCaches* caches);
  // Mean cross entropy of `targets` i32 [N, S], the tokens that follow each of `ids` (-100: none),
  // without the logits in memory. `starts` is that of hidden(). ShapeError.
  Tensor loss(Tensor ids, const Tensor& targets, const Tensor& starts = {});
  // ids i32 [N, S] with at most max_new_tokens drawn after each, [N, S + new tokens]. It runs in
  // evaluation mode and without gradients. ShapeError if ids have no tokens or the result may be
  // longer than longest(); ValueError as sample_tokens(); NumericsError, which names the op that
  // overflowed first and what to do, if logits are not finite.
  Tensor generate(const Tensor& ids, const GenerateOptions& options = {});

 protected:
  // Returns the positions i32 [N, S] that `starts` gives the tokens of [N, S] ids. ShapeError,
  // DTypeError.
  static Tensor positions_of(const Tensor& ids, const KeyValueCaches* caches, const Tensor& starts);
};

// Draws tokens i32 [N] from logits [N, V]: with the probabilities of softmax(logits / temperature),
// or the first largest one if that is 0, or below 1e-30. The device draws them, as the largest of
// the logits with noise of Gumbel's distribution (Maddison et al. 2014). `seen` i32 [N, S] are the
// tokens that the penalty is for; undefined: none. ShapeError; ValueError for options: negative
// temperatures and top_k, top_p outside (0, 1], min_p outside [0, 1], penalties that are not
// positive.
Tensor sample_tokens(const Tensor& logits, const SampleOptions& options = {},
                     const Tensor& seen = {});

// The result of perplexity().
struct Perplexity {
  double value = 0;    // exp of the mean cross entropy
  int64_t tokens = 0;  // the number of predicted tokens
};
// How well a model predicts a text, as llama.cpp measures it: the text is cut into windows of
// `context` tokens (the rest is left out), and in each the tokens of the second half count, which
// follow at least context / 2 others. With `bos`, that token replaces the first of each window.
// ValueError unless context is even, at least 4 and at most longest(), and the text has one window.
// NumericsError as generate() if a loss is not finite.
Perplexity perplexity(CausalLM& model, std::span<const int32_t> text, int64_t context,
                      std::optional<int32_t> bos = {});

}  // namespace rw
