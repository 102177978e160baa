// PyTorch's transformer modules: outputs and gradients as PyTorch computes them; weight_norm.
#include <cmath>

#include "core/autograd/checkpoint.h"
#include "nn/transformer/transformer.h"
#include "nn/weight_norm.h"
#include "ops/autocast.h"
#include "ops/layout/unbind.h"
#include "ops/operators.h"
#include "tests/fixtures/golden_rows.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

#include "tests/goldens/transformer.inc"

constexpr int64_t transformer_batch = 2, source_length = 9, target_length = 7,
                  transformer_width = 24;

TransformerOptions small_options(float dropout = 0) {
  return {.d_model = transformer_width, .nhead = 3, .dim_feedforward = 40, .dropout = dropout};
}

Tensor hashed_tensor(const std::string& name, const Shape& shape) {
  return tensor(hashed(name, shape.numel()), shape);
}

Tensor source() {
  return hashed_tensor("source", {transformer_batch, source_length, transformer_width});
}
Tensor target() {
  return hashed_tensor("target", {transformer_batch, target_length, transformer_width});
}

void compare_transformer(const std::vector<GoldenRow>& rows, TransformerOptions options) {
  Transformer model(options, 2, 2);
  fill_from_hash(model, is_norm_weight);
  const Tensor src = source().set_requires_grad(), tgt = target().set_requires_grad();
  const Attend padded{.lengths = tensor(std::vector<int32_t>{9, 6}, {transformer_batch})};
  const Tensor y = model.forward(src, tgt, padded, {.causal = true}, padded);
  check_row(y, rows[0], 2e-5);
  sum(y * hashed_tensor("weights", y.shape())).backward();
  check_row(src.grad(), rows[1], 2e-5);
  check_row(tgt.grad(), rows[2], 2e-5);
  check_gradients(model, {rows.begin() + 3, rows.end()}, 1, 2e-5);
}

// Output and gradients of an encoder and decoder with dropout.
HostValues run_transformer(int every, DType dtype) {
  manual_seed(5);
  Transformer model(small_options(0.2f), 2, 3);
  model.set_checkpoint(every);
  const Tensor src = source().set_requires_grad();
  Tensor y;
  {
    const Autocast autocast(dtype, dtype != DType::f32);
    y = cast(model.forward(src, target(), {}, {.causal = true}), DType::f32);
  }
  CHECK(Tape::current()->stats().segments == static_cast<size_t>(every ? 5 : 0));
  HostValues values = {y.to_vector()};
  sum(square(std::move(y))).backward();
  values.push_back(src.grad().to_vector());
  for (const Tensor& p : model.parameters()) values.push_back(p.grad().to_vector());
  return values;
}

}  // namespace

TEST_CASE("nn.Transformer: outputs and gradients are PyTorch's, post-norm and pre-norm") {
  on_each_device([] {
    compare_transformer(post_norm, small_options());
    TransformerOptions options = small_options();
    options.activation = gelu;
    options.norm_first = true;
    compare_transformer(pre_norm, options);
  });
}

TEST_CASE("nn.Transformer: attention of three tensors, of two, and of one agree") {
  on_each_device([] {
    MultiheadAttention m(transformer_width, 3);
    const Tensor x = source();
    const std::vector<float> packed = m.forward(x, {.causal = true}).to_vector();
    CHECK(largest_error(m.forward(x, contiguous(x), x * 1.0f, {.causal = true}).to_vector(),
                        packed) < 1e-5);
    CHECK(m.forward(x, x, x, {.causal = true}).to_vector() == packed);
    const Tensor memory = x * 1.0f;
    CHECK(largest_error(m.forward(x, memory, memory, {.causal = true}).to_vector(), packed) < 1e-5);
    const Tensor mask = hashed_tensor("mask", {1, 3, source_length, source_length});
    mask.detach().copy_(mask * 4.0f);
    Tensor learned = mask.detach().set_requires_grad();
    sum(square(m.forward(x, {.mask = learned}))).backward();
    CHECK(learned.grad().defined());
    Tape::current()->clear();
  });
}

TEST_CASE("nn.Transformer: a decoder layer with a cache gives what it gives for the whole") {
  on_each_device([] {
    TransformerDecoderLayer layer(small_options());
    layer.eval();
    const NoGrad guard;
    const Tensor memory = source(), x = target();
    const std::vector<float> whole = layer.forward(x, memory, {.causal = true}).to_vector();
    KeyValueCache cache(transformer_batch, 3, target_length, transformer_width / 3);
    std::vector<Tensor> parts;
    for (int64_t i = 0; i < target_length; ++i)
      parts.push_back(
          layer.forward(slice(x, 1, i, i + 1), memory, {.causal = true, .cache = &cache}));
    CHECK(largest_error(concat(parts, 1).to_vector(), whole) < 1e-5);
    cache.clear();
    CHECK(largest_error(layer.forward(x, memory, {.causal = true, .cache = &cache}).to_vector(),
                        whole) < 1e-5);
  });
}

TEST_CASE("nn.Transformer: segments change no bit, dropout included") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16})
      CHECK(run_transformer(1, dtype) == run_transformer(0, dtype));
  });
}

TEST_CASE("nn.Transformer: refuses what does not go together") {
  on_each_device([] {
    CHECK_THROWS_AS(MultiheadAttention(10, 4), ValueError);
    CHECK_THROWS_AS(MultiheadAttention(0, 1), ValueError);
    CHECK_THROWS_AS(TransformerEncoder(small_options(), 0), ValueError);
    TransformerOptions narrow = small_options();
    narrow.dim_feedforward = 0;
    CHECK_THROWS_AS(TransformerEncoderLayer{narrow}, ValueError);
    Transformer model(small_options(), 1, 1);
    CHECK_THROWS_AS(model.forward(source(), select(target(), 0, 0)), ShapeError);
    CHECK_THROWS_AS(model.set_checkpoint(-1), ValueError);
    KeyValueCache cache(transformer_batch, 3, 4, transformer_width / 3);
    CHECK_THROWS_AS(model.encoder.forward(source(), {.cache = &cache}), ValueError);
    MultiheadAttention m(transformer_width, 3);
    CHECK_THROWS_AS(m.forward(source(), {.cache = &cache}), AutogradError);
    const NoGrad guard;
    CHECK_THROWS_AS(m.forward(source(), {.cache = &cache}), ShapeError);  // 9 tokens in 4
    CHECK_THROWS_AS(m(select(source(), 0, 0)), ShapeError);
  });
  Tape::current()->clear();
}

TEST_CASE("weight_norm: the direction of v, the length of g") {
  on_each_device([] {
    WeightNormLinear layer(5, 3);
    const Tensor x = hashed_tensor("x", {4, 5});
    const NoGrad guard;
    const Tensor plain = weight_norm(layer.weight_v, layer.weight_g);
    CHECK(largest_error(plain.to_vector(), layer.weight_v.to_vector()) < 1e-6);
    layer.weight_v.copy_(layer.weight_v * 3.0f);
    CHECK(largest_error(layer(x).to_vector(), linear(x, plain, layer.bias).to_vector()) < 1e-6);
    layer.weight_g.copy_(layer.weight_g * 2.0f);
    CHECK(largest_error(layer(x).to_vector(), linear(x, plain * 2.0f, layer.bias).to_vector()) <
          1e-6);
    WeightNormConv2d conv(4, 6, 3, {.padding = 1});
    const Tensor image = hashed_tensor("image", {1, 5, 5, 4});
    CHECK(largest_error(conv(image).to_vector(),
                        conv2d(image, conv.weight_v, conv.bias, {.padding = 1}).to_vector()) <
          1e-6);
    CHECK_THROWS_AS(weight_norm(zeros({3, 2}), zeros({2})), ShapeError);
    CHECK_THROWS_AS(WeightNormLinear(0, 2), ValueError);
    CHECK_THROWS_AS(unbind(zeros({0, 2})), ShapeError);
    CHECK_THROWS_AS(unbind(zeros({2}), 1), ShapeError);
  });
}

}  // namespace rw::test
