#include <utility>

#include "benchmarks/speed/cases.h"
#include "ops/losses/losses.h"
#include "ops/network/positions.h"
#include "ops/operators.h"
#include "ops/ops.h"

namespace rw::speed {

namespace {

// The sizes of SmolLM2-135M, a decoder of Llama's kind.
constexpr int64_t vocabulary = 49152, hidden = 576, heads = 9, key_heads = 3, width = 64,
                  inner = 1536, layers = 30, length = 128;

struct Layer {
  Tensor norm, query, key, value, output, second_norm, gate, up, down;
};

class Decoder {
 public:
  explicit Decoder(DType dtype) : dtype_(dtype) {
    table_ = weight({vocabulary, hidden});
    for (Layer& l : layers_)
      l = {norm(),
           weight({heads * width, hidden}),
           weight({key_heads * width, hidden}),
           weight({key_heads * width, hidden}),
           weight({hidden, heads * width}),
           norm(),
           weight({inner, hidden}),
           weight({inner, hidden}),
           weight({hidden, inner})};
    last_norm_ = norm();
  }

  std::vector<Tensor> leaves() const { return leaves_; }

  Tensor loss(const Tensor& ids, const Tensor& targets) const {
    Tensor x = embedding(table_, ids);
    for (const Layer& l : layers_) x = run(l, x);
    x = reshape(rms_norm(x, last_norm_), {length, hidden});
    return cross_entropy(linear(x, table_), targets);
  }

 private:
  Tensor norm() {
    leaves_.push_back(standard_values({hidden}, DType::f32, true));
    return leaves_.back();
  }
  Tensor weight(const Shape& shape) {
    leaves_.push_back(standard_values(shape, dtype_) * 0.03f);
    return leaves_.back().set_requires_grad();
  }

  // [1, length, heads * width] -> [1, heads, length, width]
  static Tensor split(const Tensor& x, int64_t count) {
    return transpose(reshape(x, {1, length, count, width}), 1, 2);
  }

  static Tensor run(const Layer& l, const Tensor& x) {
    const Tensor h = rms_norm(x, l.norm);
    const Tensor q = rotary(split(linear(h, l.query), heads));
    const Tensor k = rotary(split(linear(h, l.key), key_heads));
    const Tensor v = split(linear(h, l.value), key_heads);
    const Tensor joined =
        reshape(transpose(attention(q, k, v, {.causal = true}), 1, 2), {1, length, heads * width});
    const Tensor y = add(x, linear(joined, l.output)), g = rms_norm(y, l.second_norm);
    return add(y, linear(mul(silu(linear(g, l.gate)), linear(g, l.up)), l.down));
  }

  DType dtype_;
  Tensor table_, last_norm_;
  std::array<Layer, layers> layers_;
  std::vector<Tensor> leaves_;
};

}  // namespace

// Without an update, as Inference Arena measures it.
std::vector<Case> decoder_cases() {
  return {{"decoder/smollm2-135m-1x128", 0, 0, [](DType dtype) {
             const auto model = std::make_shared<Decoder>(dtype);
             const Tensor ids = standard_indices({1, length}, vocabulary),
                          targets = standard_indices({length}, vocabulary);
             return forward_and_backward([=] { return model->loss(ids, targets); },
                                         model->leaves());
           }}};
}

}  // namespace rw::speed
