// The most memory that backward holds: saved inputs go before gradients of their size come, and
// weight gradients are added to existing ones.
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/numeric.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

constexpr int64_t matrix_width = 256;
constexpr uint64_t large_bytes = matrix_width * matrix_width * 4,
                   small_bytes = 16 * matrix_width * 4;

// Returns the bytes that backward needs beyond those that are alive when it begins.
uint64_t needed(const Tensor& loss, bool retain) {
  Device& device = *default_device();
  const uint64_t before = device.live();
  device.take_high_water();
  loss.backward({}, retain);
  return device.take_high_water() - before;
}

Tensor weight(const Shape& shape) {
  return full(shape, 0.5f).set_requires_grad();
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice,
                  "backward: a product lets go of its input before it makes that one's gradient" *
                      doctest::test_suite("host")) {
  using Product = Tensor (*)(const Tensor& h);
  const Product products[] = {[](const Tensor& h) {
                                return linear(h, weight({1, matrix_width}));
                              },
                              [](const Tensor& h) {
                                return matmul(h, weight({matrix_width, 1}));
                              },
                              [](const Tensor& h) {
                                return conv2d(reshape(h, {1, matrix_width, 1, matrix_width}),
                                              weight({1, 1, 1, matrix_width}));
                              }};
  for (const Product product : products) {
    const auto loss = [&] {
      const Tensor x = weight({matrix_width, matrix_width});
      x.impl().grad = zeros({matrix_width, matrix_width});  // dx is added to it
      return sum(product(x + 1.0f));  // sums save nothing: only the product holds x + 1
    };
    CHECK(needed(loss(), false) <= small_bytes);
    CHECK(needed(loss(), true) >= large_bytes);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "backward: gated activations keep two tensors and need one more" *
                                 doctest::test_suite("host")) {
  for (Tensor (*const gated)(Tensor, Tensor) : {swiglu, geglu}) {
    const Tensor gate = weight({matrix_width, matrix_width}),
                 x = weight({matrix_width, matrix_width});
    for (const Tensor& leaf : {gate, x}) leaf.impl().grad = zeros({matrix_width, matrix_width});
    const Tensor loss = sum(gated(gate + 1.0f, x + 1.0f));
    CHECK(Tape::current()->stats().saved_bytes == 2 * large_bytes);
    CHECK(needed(loss, false) <=
          large_bytes + small_bytes);  // the other gradient lies where x + 1 was
  }
}

TEST_CASE_FIXTURE(
    CpuDevice, "backward: a weight's gradient is added to the one there is, without a second one" *
                   doctest::test_suite("host")) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    const Tensor w = weight({matrix_width, matrix_width}),
                 x = full({2, matrix_width}, 0.25f, dtype);
    const auto loss = [&] { return sum(linear(x, cast(w, dtype))); };
    const uint64_t first = needed(loss(), false);
    CHECK(first >= large_bytes);  // w.grad itself
    const std::vector<float> once = w.grad().to_vector();
    CHECK(needed(loss(), false) <= small_bytes);
    const std::vector<float> twice = w.grad().to_vector();
    for (size_t i = 0; i < once.size(); ++i) REQUIRE(twice[i] == 2 * once[i]);
  }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "backward: gradients of views and casts of a weight add up all the same" *
                      doctest::test_suite("host")) {
  const Tensor w = weight({matrix_width, matrix_width}), x = full({2, matrix_width}, 0.25f);
  for (int i = 0; i < 2; ++i) {
    sum(linear(x, transpose(w, 0, 1))).backward();
    sum(linear(cast(x, DType::f16), cast(w, DType::f16))).backward();
    sum(linear(x, w)).backward();
  }
  CHECK(w.grad().to_vector()[0] == 3.0f);
}

TEST_CASE_FIXTURE(CpuDevice, "ops let go of what they are given, not at the end of the statement" *
                                 doctest::test_suite("host")) {
  const Tensor a = full({matrix_width, matrix_width}, 0.001f);
  const auto held = [](const auto& statement) {
    Device& device = *default_device();
    const uint64_t before = device.live();
    device.take_high_water();
    statement();
    return device.take_high_water() - before;
  };
  const NoGrad guard;
  // The most that one op reads and writes.
  CHECK(held([&] { return matmul(matmul(matmul(matmul(a, a), a), a), a); }) <= 2 * large_bytes);
  CHECK(held([&] {
          return sum(matmul(
              a, transpose(reshape(matmul(matmul(a, a), a), {matrix_width, matrix_width}), 0, 1)));
        }) <= 2 * large_bytes + small_bytes);
  CHECK(held([&] {
          return matmul(
              a, matmul(slice(concat({matmul(a, a), matmul(a, a)}, 0), 0, 0, matrix_width), a));
        }) <= 4 * large_bytes);
  CHECK(held([&] {
          return mean(softmax(
              max_pool2d(reshape(layer_norm(matmul(a, a)), {1, matrix_width, matrix_width, 1}),
                         Pool2dOptions{1, 1})));
        }) <= 3 * large_bytes + small_bytes);
  Linear linear(matrix_width, matrix_width, false);
  Sequential model;
  model.emplace<Linear>(matrix_width, matrix_width, false);
  model.emplace<Linear>(matrix_width, matrix_width, false);
  CHECK(held([&] { return sum(model(linear(linear(linear(matmul(a, a)))))); }) <=
        2 * large_bytes + small_bytes);
}

}  // namespace rw::test
