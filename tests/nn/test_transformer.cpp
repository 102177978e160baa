// Transformer layers against the same from plain ops, on the layer's own parameters.
#include "core/autograd/checkpoint.h"
#include "nn/transformer/attention.h"
#include "ops/autocast.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

Tensor plain_attention(const BertAttention& m, const Tensor& x, int64_t heads,
                       const Tensor& mask = {}) {
  const int64_t n = x.size(0), length = x.size(1), dim = x.size(2) / heads;
  const auto project = [&](const Linear& l) {
    return transpose(reshape(linear(x, l.weight, l.bias), {n, length, heads, dim}), 1, 2);
  };
  Tensor scores = matmul(project(m.query), transpose(project(m.key), 2, 3)) /
                  std::sqrt(static_cast<float>(dim));
  if (mask) scores = scores + mask;
  const Tensor y = matmul(softmax(scores), project(m.value));
  return linear(reshape(transpose(y, 1, 2), {n, length, x.size(2)}), m.dense.weight, m.dense.bias);
}

Tensor plain_feed_forward(const BertLayer& m, const Tensor& x) {
  const Tensor h = gelu(linear(x, m.intermediate.weight, m.intermediate.bias));
  return linear(h, m.output.weight, m.output.bias);
}

Tensor plain_norm(const LayerNorm& m, const Tensor& x) {
  return layer_norm(x, m.weight, m.bias, 1e-12f);
}

Tensor sample(const Shape& shape) {
  return tensor(some_values(static_cast<int>(shape.numel())), shape);
}

// Output, then the gradients of the input and of every parameter.
template <class F>
HostValues module_values(Module& module, F&& forward) {
  for (Tensor t : module.parameters()) t.set_grad({});
  Tensor x = sample({2, 7, 24}).set_requires_grad();
  Evaluated e = evaluate({x}, [&](const Tensors& in) { return Tensors{forward(in[0])}; });
  HostValues all = {e.outputs[0], e.gradients[0]};
  for (const Tensor& t : module.parameters()) all.push_back(t.grad().to_vector());
  return all;
}

void check_all_close(const HostValues& actual, const HostValues& expected, const char* what) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    double difference = 0, scale = 0.1;  // the keys' bias has no gradient
    for (size_t k = 0; k < expected[i].size(); ++k) {
      difference += std::pow(double{actual[i].at(k)} - expected[i][k], 2);
      scale += double{expected[i][k]} * expected[i][k];
    }
    CHECK_MESSAGE(std::sqrt(difference / scale) < 2e-5, what << ": value " << i);
  }
}

}  // namespace

TEST_CASE("transformer: parameters are named as in Hugging Face's BERT") {
  on_each_device([] {
    BertLayer layer({.hidden = 8, .heads = 2, .intermediate = 16});
    std::vector<std::string> names;
    for (const NamedTensor& t : layer.named_parameters()) names.push_back(t.name);
    std::vector<std::string> expected;
    for (const char* module : {"attention.self.query", "attention.self.key", "attention.self.value",
                               "attention.output.dense", "attention.output.LayerNorm",
                               "intermediate.dense", "output.dense", "output.LayerNorm"})
      for (const char* parameter : {".weight", ".bias"})
        expected.push_back(std::string(module) + parameter);
    CHECK(names == expected);
    CHECK_THROWS_AS(BertAttention(10, 4), ValueError);
  });
}

TEST_CASE("transformer: post-norm and pre-norm layers equal their formulas") {
  on_each_device([] {
    for (const bool pre_norm : {false, true}) {
      manual_seed(1);
      BertLayer m({.hidden = 24, .heads = 3, .intermediate = 40, .pre_norm = pre_norm});
      m.eval();
      const Tensor lengths = tensor(std::vector<int32_t>{5, 7}, {2});
      std::vector<float> hidden(2 * 7, 0);
      hidden[5] = hidden[6] = -INFINITY;
      const Tensor mask = tensor(hidden, {2, 1, 1, 7});
      const auto plain = [&](Tensor x) {
        if (pre_norm) {
          x = x + plain_attention(m.attention, plain_norm(m.attention_norm, x), 3, mask);
          return x + plain_feed_forward(m, plain_norm(m.output_norm, x));
        }
        x = plain_norm(m.attention_norm, x + plain_attention(m.attention, x, 3, mask));
        return plain_norm(m.output_norm, x + plain_feed_forward(m, x));
      };
      const HostValues expected = module_values(m, plain);
      const auto with_lengths = [&](Tensor x) { return m.forward(std::move(x), {}, lengths); };
      const auto with_mask = [&](Tensor x) { return m.forward(std::move(x), mask); };
      check_all_close(module_values(m, with_lengths), expected,
                      pre_norm ? "pre-norm" : "post-norm");
      check_all_close(module_values(m, with_mask), expected, "mask");
    }
  });
}

TEST_CASE("transformer: a causal layer does not look ahead") {
  on_each_device([] {
    BertLayer m({.hidden = 24, .heads = 3, .intermediate = 40, .causal = true});
    m.eval();
    const NoGrad guard;
    const Tensor x = sample({2, 7, 24});
    const Tensor before = slice(m(x), 1, 0, 4);
    fill_(x, 0.5f);
    copy_into(slice(sample({2, 7, 24}), 1, 0, 4), slice(x, 1, 0, 4));
    CHECK(slice(m(x), 1, 0, 4).to_vector() == before.to_vector());
  });
}

TEST_CASE("transformer: dropout in training only; f16 and segments give the same bits again") {
  on_each_device([] {
    BertLayer m({.hidden = 24, .heads = 3, .intermediate = 40});
    const auto run = [&](bool segment) {
      return module_values(m, [&](Tensor x) {
        const Autocast autocast(DType::f16);
        const CheckpointScope scope(segment);
        return m(x * 1.5f);
      });
    };
    CHECK(run(true) == run(false));
    const NoGrad guard;
    const Tensor x = sample({2, 7, 24});
    CHECK(m(x).to_vector() != m(x).to_vector());
    m.eval();
    CHECK(m(x).to_vector() == m(x).to_vector());
  });
}

}  // namespace rw::test
