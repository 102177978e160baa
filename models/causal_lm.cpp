#include "models/causal_lm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/layout/indexing.h"
#include "ops/losses/losses.h"
#include "ops/numerics/overflow.h"
#include "ops/operators.h"

namespace rw {

namespace {

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

// The index of the largest of scores [N, V] with noise -log(-log(u)). Where u is 0 the noise is
// -infinity, and any token with a chance wins over that one.
Tensor draw(const Tensor& scores, Generator& generator) {
  Tensor noise = neg(log(neg(log(rand(scores.shape(), 0, 1, DType::f32, generator)))));
  return argmax(scores + std::move(noise));
}

// A token that was seen twice is written twice, with the same value.
Tensor penalised(const Tensor& scores, const Tensor& seen, float penalty) {
  const Tensor old = gather(scores, 1, seen);
  return scatter(scores, 1, seen, where(old < 0, old * penalty, old / penalty));
}

void check_options(const SampleOptions& o) {
  check(o.temperature >= 0 && std::isfinite(o.temperature), "sample_tokens",
        "the temperature must not be negative, got {}", o.temperature);
  check(o.top_k >= 0 && o.top_p > 0 && o.top_p <= 1, "sample_tokens",
        "top_k must not be negative and top_p be in (0, 1], got {} and {}", o.top_k, o.top_p);
  check(o.min_p >= 0 && o.min_p <= 1, "sample_tokens", "min_p must be in [0, 1], got {}", o.min_p);
  check(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "sample_tokens",
        "the repetition penalty must be positive, got {}", o.repetition_penalty);
}

// Throws the error for logits of these ids that are not finite: it runs them again, to name the op.
[[noreturn]] void fail_not_finite(const char* op, CausalLM& model, const Tensor& ids) {
  DType dtype = DType::f32;
  const std::optional<Overflow> found =
      first_overflow([&] { dtype = model.forward(ids, nullptr).dtype(); });
  const std::string advice = overflow_advice(found ? found->dtype : dtype);
  fail<NumericsError>(op, "the logits must be finite, got others: {}; {}",
                      found ? found->str() : fmt::format("they overflow in {}", name(dtype)),
                      advice.empty() ? "the weights are damaged, or of another model" : advice);
}

}  // namespace

Tensor CausalLM::forward(Tensor ids, KeyValueCaches* caches) {
  return logits(hidden(std::move(ids), caches));
}

int64_t CausalLM::vocabulary() {
  if (const Linear* own = head()) return own->out_features();
  return head_blocks() ? head_blocks()->rows() : head_weight().size(0);
}

Tensor CausalLM::logits(Tensor states) {
  if (Linear* const own = head()) return (*own)(std::move(states));
  if (head_blocks()) return linear(std::move(states), *head_blocks());
  return linear(std::move(states), head_weight());
}

Tensor CausalLM::positions_of(const Tensor& ids, const KeyValueCaches* caches,
                              const Tensor& starts) {
  check(!caches, "hidden", "starts are for rows of whole texts, without caches");
  check<ShapeError>(starts.shape() == ids.shape(), "hidden",
                    "needs a start for each token, got {} and {}", ids, starts);
  check<DTypeError>(starts.dtype() == DType::i32, "hidden", "starts must be i32, got {}", starts);
  return arange(ids.size(1)) - starts;
}

Tensor CausalLM::loss(Tensor ids, const Tensor& targets, const Tensor& starts) {
  check<ShapeError>(ids.shape() == targets.shape(), "loss",
                    "needs a target for each token, got {} and {}", ids, targets);
  Tensor states = flatten(hidden(std::move(ids), nullptr, starts), 0, 1);
  if (head_blocks())
    return tied_cross_entropy(std::move(states), *head_blocks(), {}, flatten(targets));
  const bool has_substitute = head() && head()->substitute();
  return has_substitute
             ? cross_entropy(logits(std::move(states)), flatten(targets))
             : tied_cross_entropy(std::move(states), head_weight(), {}, flatten(targets));
}

Tensor sample_tokens(const Tensor& logits, const SampleOptions& o, const Tensor& seen) {
  check<ShapeError>(logits.rank() == 2 && logits.size(1) > 0, "sample_tokens",
                    "the logits must be [N, V], got {}", logits);
  check_options(o);
  const NoGrad guard;
  Tensor scores = cast(logits, DType::f32);
  if (o.repetition_penalty != 1 && seen.defined())
    scores = penalised(scores, seen, o.repetition_penalty);
  // Below this, quotients of usual logits are beyond f32.
  constexpr float coldest = 1e-30f;
  if (o.temperature < coldest) return argmax(scores);
  Generator& generator = o.generator ? *o.generator : default_generator();
  scores = scores / o.temperature;
  if (o.top_k == 0 && o.top_p == 1 && o.min_p == 0) return draw(scores, generator);
  const int64_t tokens = logits.size(1), kept = o.top_k == 0 ? tokens : std::min(o.top_k, tokens);
  const SortResult likeliest = topk(scores, kept);
  // The first of the tokens that top_k keeps always stays.
  constexpr float never = -std::numeric_limits<float>::infinity();
  const Tensor chances = softmax(likeliest.values);
  const Tensor before = cumsum(chances, 1) - chances;
  Tensor allowed = masked_fill(likeliest.values, before >= o.top_p, never);
  allowed = masked_fill(std::move(allowed), chances < slice(chances, 1, 0, 1) * o.min_p, never);
  return flatten(gather(likeliest.indices, 1, unsqueeze(draw(allowed, generator), 1)));
}

Tensor CausalLM::generate(const Tensor& ids, const GenerateOptions& o) {
  check<ShapeError>(ids.rank() == 2 && ids.numel() > 0, "generate",
                    "ids must be [N, S] and hold tokens, got {}", ids);
  check(o.max_new_tokens >= 0, "generate", "max_new_tokens must not be negative, got {}",
        o.max_new_tokens);
  const int64_t n = ids.size(0), given = ids.size(1), end = given + o.max_new_tokens;
  check<ShapeError>(end <= longest(), "generate",
                    "the model has positions for {} tokens, got {} and {} new ones", longest(),
                    given, o.max_new_tokens);
  const NoGrad guard;
  const EvalScope eval(*this);
  KeyValueCaches caches;
  if (o.use_cache) caches = make_caches(n, end);
  Tensor all = empty({n, end}, DType::i32);
  slice(all, 1, 0, given).copy_(ids);
  Tensor total = zeros({});  // of all logits: finite as long as they are
  for (int64_t length = given; length < end; ++length) {
    const int64_t first = o.use_cache ? caches[0].length() : 0;
    const Tensor states = hidden(slice(all, 1, first, length), o.use_cache ? &caches : nullptr);
    const Tensor next = cast(logits(select(states, 1, -1)), DType::f32);
    total = total + sum(next);
    const Tensor tokens = sample_tokens(next, o.sample, slice(all, 1, 0, length));
    select(all, 1, length).copy_(tokens);
    const bool is_last = length + 1 == end;
    if ((o.on_tokens || is_last) && !std::isfinite(total.item()))
      fail_not_finite("generate", *this, slice(all, 1, 0, length));
    if (o.on_tokens && !o.on_tokens(tokens.to_ints())) return slice(all, 1, 0, length + 1);
  }
  return all;
}

Perplexity perplexity(CausalLM& model, std::span<const int32_t> text, int64_t context,
                      std::optional<int32_t> bos) {
  check(context >= 4 && context % 2 == 0 && context <= model.longest(), "perplexity",
        "the context must be even, at least 4 and at most the model's {} positions, got {}",
        model.longest(), context);
  const auto window = static_cast<size_t>(context);
  check(text.size() >= window, "perplexity", "the text must have {} tokens, got {}", context,
        text.size());
  const NoGrad guard;
  const EvalScope eval(model);
  double sum = 0;
  Perplexity result;
  for (size_t at = 0; at + window <= text.size(); at += window) {
    std::vector<int32_t> ids(text.begin() + int64_t(at), text.begin() + int64_t(at + window));
    std::vector<int32_t> targets(window, -100);
    std::copy(ids.begin() + context / 2 + 1, ids.end(), targets.begin() + context / 2);
    if (bos) ids[0] = *bos;
    const int64_t predicted = context / 2 - 1;
    const Tensor input = tensor(ids, {1, context});
    const double loss = model.loss(input, tensor(targets, {1, context})).item();
    if (!std::isfinite(loss)) fail_not_finite("perplexity", model, input);
    sum += loss * static_cast<double>(predicted);
    result.tokens += predicted;
  }
  result.value = std::exp(sum / static_cast<double>(result.tokens));
  return result;
}

}  // namespace rw
