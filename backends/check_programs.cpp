#include "backends/check_programs.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "ops/operators.h"
#include "ops/ops.h"

namespace rw {

namespace {

// Returns numbers in [-2, 2] that look random and are the same everywhere.
Tensor numbers(const Shape& shape, DType dtype, uint32_t seed = 1) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) * (4.0f / (1 << 24)) - 2.0f;
  }
  return tensor(values, shape, dtype);
}

Tensor leaf(const Shape& shape, DType dtype, uint32_t seed) {
  return numbers(shape, dtype, seed).set_requires_grad();
}

// Returns y and the gradients of the leaves, for a dy whose elements differ.
std::vector<Tensor> with_gradients(Tensor y, std::initializer_list<Tensor> leaves) {
  y.backward(numbers(y.shape(), y.dtype(), 99));
  std::vector<Tensor> all = {y.detach()};
  for (const Tensor& t : leaves) all.push_back(t.grad());
  return all;
}

// Returns f32 values on which conversions to f16 and bf16 differ: ties, the last finite and the
// first infinite result, denormals and ties among them, and zeros.
std::vector<float> hard_to_round() {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {
      0.0f,          1.0f,           2049.0f,       2051.0f, 4098.0f,       65504.0f, 65519.0f,
      65520.0f,      1e10f,          3.0e38f,       inf,     std::nanf(""), 6.0e-5f,  5.9604645e-8f,
      2.9802322e-8f, 2.9802326e-8f,  8.940697e-8f,  1e-8f,   1e-40f,        1.0f / 3, 0.1f,
      1234.567f,     1.00048828125f, 1.00146484375f};
  for (size_t i = values.size(); i-- > 0;) values.push_back(-values[i]);
  return values;  // 48 values: whole words of any kind
}

std::vector<Tensor> to_16_bits(DType) {
  const std::vector<float> values = hard_to_round();
  const auto count = static_cast<int64_t>(values.size());
  const Tensor x = tensor(values, {count});
  std::vector<Tensor> all;
  for (const DType half : {DType::f16, DType::bf16}) {
    all.push_back(cast(x, half));
    // Takes every second element, which is stored alone.
    all.push_back(cast(slice(concat({x, x}, 0), 0, 1, 2 * count, 2), half));
  }
  return all;
}

std::vector<Tensor> from_16_bits(DType) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  std::vector<Tensor> all;
  for (const DType half : {DType::f16, DType::bf16}) {
    const Tensor x = empty({256, 256}, half);
    write_elements(x, 0, x.numel(), halves.data());
    all.push_back(cast(x, DType::f32));
    all.push_back(cast(transpose(x, 0, 1), DType::f32));
  }
  return all;
}

std::vector<Tensor> elementwise(DType t) {
  const Tensor x = numbers({7, 24}, t), y = numbers({24}, t, 2);
  return {exp(x),
          log(abs(x) + 0.1f),
          sqrt(abs(x)),
          tanh(x),
          gelu(x),
          x / (abs(y) + 0.5f),
          cast(greater(x, y), DType::f32),
          transpose(x, 0, 1) * 3.0f};
}

// GLSL does not define functions and their slopes far from 0: tanh, as drivers may implement it, is
// NaN from 89 on.
std::vector<Tensor> functions_far_out(DType t) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0,   0.5f, -0.5f, 1,   -1,   9,   -9,   13,
                                     -13, 20,   -20,   100, -100, inf, -inf, std::nanf("")};
  std::vector<Tensor> all;
  const auto add = [&](Tensor (*function)(Tensor)) {
    const Tensor x = tensor(values, {16}, t).set_requires_grad();
    Tensor y = function(x);
    all.push_back(y.detach());
    if (!y.requires_grad()) return;
    y.backward(full({16}, 1, t));
    all.push_back(x.grad());
  };
#define UNARY(id, name, forward, grad, saves, lo, hi) add([](Tensor x) { return name(x); });
#define UNARY_AB(id, name, forward, grad, saves, lo, hi)
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y)
#define COMPARE(id, name, forward)
#include "shaders/elementwise.def"
  return all;
}

std::vector<Tensor> reductions(DType t) {
  const Tensor x = numbers({37, 70}, t);
  return {sum(x, {0}),  sum(x, {1}), mean(x), max(x, {1}), cast(argmax(x, 1), DType::f32),
          softmax(x, 1)};
}

std::vector<Tensor> long_loops(DType) {
  return {sum(full({70001}, 0.5f)), cumsum(full({70001}, 1.0f), 0)};
}

std::vector<Tensor> layer_norms(DType t) {
  const Tensor x = leaf({5, 24}, t, 3), w = leaf({24}, DType::f32, 4),
               b = leaf({24}, DType::f32, 5);
  std::vector<Tensor> all = with_gradients(layer_norm(x, w, b), {x, w, b});
  all.push_back(layer_norm(numbers({3, 601}, t)));
  all.push_back(rms_norm(numbers({4, 64}, t)));
  return all;
}

std::vector<Tensor> batch_norms(DType t) {
  std::vector<Tensor> all;
  for (const Shape& shape : {Shape{9, 5}, Shape{70, 8}}) {
    const int64_t c = shape[1];
    const Tensor x = leaf(shape, t, 6), w = leaf({c}, DType::f32, 7), b = leaf({c}, DType::f32, 8);
    for (Tensor& y : with_gradients(batch_norm(x, w, b, 1e-3f).y, {x, w, b}))
      all.push_back(std::move(y));
  }
  return all;
}

std::vector<Tensor> group_norms(DType t) {
  const Tensor x = leaf({2, 9, 12}, t, 9), w = leaf({12}, DType::f32, 10),
               b = leaf({12}, DType::f32, 11);
  return with_gradients(group_norm(x, 3, w, b), {x, w, b});
}

std::vector<Tensor> products(DType t) {
  const Tensor a = numbers({33, 40}, t, 12), b = numbers({40, 18}, t, 13);
  const Tensor c = numbers({130, 70}, t, 14), d = numbers({100, 70}, t, 15);
  std::vector<Tensor> all = {matmul(a, b), matmul(transpose(b, 0, 1), transpose(a, 0, 1)),
                             matmul(c, transpose(d, 0, 1)),
                             matmul(numbers({3, 5, 600}, t, 16), numbers({3, 600, 7}, t, 17))};
  // On GPUs the tiles of this product take bias, residual and activation.
  Tensor y = linear(numbers({150, 72}, t, 26), numbers({136, 72}, t, 27), numbers({136}, t, 28));
  all.push_back(relu(std::move(y) + numbers({150, 136}, t, 29)));
  if (t != DType::f32)
    all.push_back(matmul(numbers({64, 72, 40}, t, 24), numbers({64, 40, 72}, t, 25)));
  return all;
}

std::vector<Tensor> convolutions(DType t) {
  const Tensor x = leaf({2, 6, 5, 8}, t, 18), w = leaf({12, 3, 3, 8}, t, 19);
  return with_gradients(conv2d(x, w, {.stride = {2, 1}, .padding = 1}), {x, w});
}

std::vector<Tensor> attentions(DType t) {
  const Shape shape = {1, 2, 17, 16};
  const Tensor q = leaf(shape, t, 20), k = leaf(shape, t, 21), v = leaf(shape, t, 22);
  return with_gradients(attention(q, k, v, {.causal = true}), {q, k, v});
}

std::vector<Tensor> indices(DType t) {
  const Tensor table = leaf({9, 16}, t, 23);
  const int32_t rows[] = {3, 0, 3, 8, 3, 1, 8};
  return with_gradients(embedding(table, tensor(rows, {7})), {table});
}

// The factors are stored in both orders, in words and element by element, and are large enough for
// tiles of each size.
std::vector<Tensor> large_products(DType t) {
  std::vector<Tensor> all;
  const auto multiply = [&](const Shape& size, bool a_turned, bool b_turned) {
    const int64_t batch = size[0], m = size[1], n = size[2], k = size[3];
    const Tensor a = numbers(a_turned ? Shape{batch, k, m} : Shape{batch, m, k}, t, 31);
    const Tensor b = numbers(b_turned ? Shape{batch, n, k} : Shape{batch, k, n}, t, 32);
    all.push_back(matmul(a_turned ? transpose(a, 1, 2) : a, b_turned ? transpose(b, 1, 2) : b));
  };
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true}) {
      multiply({2, 248, 124, 40}, a_turned, b_turned);
      multiply({2, 250, 125, 33}, a_turned, b_turned);
      multiply({4, 60, 60, 40}, a_turned, b_turned);
      multiply({8, 32, 28, 40}, a_turned, b_turned);
    }
  return all;
}

// Gradients of weights are such products: their sums are long and split.
std::vector<Tensor> split_products(DType t) {
  return {matmul(transpose(numbers({2048, 128}, t, 33), 0, 1), numbers({2048, 128}, t, 34))};
}

// The result and both gradients fill large tiles; 124 channels of f16 are no whole words. With few
// pixels and many channels, sums are split.
std::vector<Tensor> large_convolutions(DType t) {
  std::vector<Tensor> all;
  const auto convolve = [&](const Shape& image, const Shape& weight) {
    const Tensor x = leaf(image, t, 35), w = leaf(weight, t, 36);
    for (Tensor& y : with_gradients(conv2d(x, w), {x, w})) all.push_back(std::move(y));
  };
  convolve({1, 17, 16, 128}, {256, 2, 1, 128});
  convolve({1, 9, 6, 256}, {128, 3, 3, 256});
  if (t == DType::f16) convolve({1, 17, 16, 124}, {256, 2, 1, 124});
  return all;
}

// Heads have several words, and threads several results; queries and keys fill no whole tile.
std::vector<Tensor> large_attentions(DType t) {
  std::vector<Tensor> all;
  for (const int64_t dim : {64, 160}) {
    const Tensor q = leaf({2, 4, 70, dim}, t, 37), k = leaf({2, 2, 75, dim}, t, 38),
                 v = leaf({2, 2, 75, dim}, t, 39);
    const Tensor mask = numbers({2, 1, 70, 75}, DType::f32, 40);
    const AttentionOptions options{.causal = dim == 64};
    for (Tensor& y : with_gradients(attention(q, k, v, options, mask), {q, k, v}))
      all.push_back(std::move(y));
  }
  return all;
}

const Check all[] = {{"conversion to 16 bits", to_16_bits, true},
                     {"conversion from 16 bits", from_16_bits, true},
                     {"long loops", long_loops, true},
                     {"elementwise functions", elementwise},
                     {"functions far out", functions_far_out},
                     {"reductions", reductions},
                     {"layer_norm", layer_norms},
                     {"batch_norm", batch_norms},
                     {"group_norm", group_norms},
                     {"matmul", products, false, false, true},
                     {"conv2d", convolutions},
                     {"attention", attentions},
                     {"embedding", indices},
                     {"large matmul", large_products, false, true, true},
                     {"split matmul", split_products, false, true, true},
                     {"large conv2d", large_convolutions, false, true, true},
                     {"large attention", large_attentions, false, true, true}};

}  // namespace

std::span<const Check> checks() {
  return all;
}

}  // namespace rw
