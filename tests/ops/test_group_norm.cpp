// Group normalisation beyond the op table: its memory, and groups of any size.
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

Tensor shifted_values(const Shape& shape, float shift = 0) {
  Values values = some_values(static_cast<int>(shape.numel()));
  for (float& v : values) v += shift;
  return tensor(values, shape);
}

// Computes in double, with one group per sample and run of channels / groups channels.
std::vector<double> expected_norm(const Values& x, const Shape& shape, int64_t groups) {
  const int64_t samples = shape[0], channels = shape.at(-1), width = channels / groups;
  const int64_t rows = shape.numel() / samples / channels;
  std::vector<double> y(x.size());
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t g = 0; g < groups; ++g) {
      const auto each = [&](auto&& body) {
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t c = g * width; c < (g + 1) * width; ++c)
            body(static_cast<size_t>((n * rows + row) * channels + c));
      };
      const auto count = static_cast<double>(rows * width);
      double mean = 0, variance = 0;
      each([&](size_t i) { mean += x[i] / count; });
      each([&](size_t i) { variance += (x[i] - mean) * (x[i] - mean) / count; });
      each([&](size_t i) { y[i] = (x[i] - mean) / std::sqrt(variance + 1e-5); });
    }
  return y;
}

}  // namespace

TEST_CASE("group_norm: groups of any size, without cancellation far from zero") {
  on_each_device([] {
    for (const auto& [shape, groups] : {std::pair{Shape{1, 300, 300, 4}, 1},
                                        {Shape{2, 129, 65, 24}, 3},
                                        {Shape{1, 70000, 3}, 3},
                                        {Shape{2, 3, 70000}, 1}})
      for (const float shift : {0.0f, 300.0f}) {
        const Tensor x = shifted_values(shape, shift);
        const Tensor y = group_norm(x, groups);
        const std::vector<double> expected = expected_norm(x.to_vector(), shape, groups);
        const double error = largest_difference(y.to_vector(), expected);
        CHECK_MESSAGE(error < (shift == 0 ? 1e-5 : 2e-4), shape.str() << " + " << shift);
      }
  });
}

TEST_CASE_FIXTURE(CpuDevice, "group_norm: holds its input once" * doctest::test_suite("host")) {
  using Norm = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& bias);
  const Norm norms[] = {
      [](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 4, w, b); },
      [](const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, w, b); }};
  for (const Norm norm : norms) {
    const Tensor leaf = full({2, 32, 32, 16}, 0.5f).set_requires_grad();
    const Tensor weight = full({16}, 1).set_requires_grad();
    const Tensor bias = full({16}, 0).set_requires_grad();
    const uint64_t before = device->live(), tensor = leaf.bytes();
    device->take_high_water();
    Tensor y = norm(leaf + 1.0f, weight, bias);
    // The input, the result and the statistics, and while it runs also partial sums.
    CHECK(device->live() - before <= 2 * tensor + 1024);
    CHECK(device->take_high_water() - before <= 2 * tensor + tensor / 16);
    CHECK(tape().stats().saved_bytes <= tensor + 1024);
    const Tensor loss = sum(y);
    y = {};
    device->take_high_water();
    const uint64_t held = device->live();
    loss.backward();
    // dy becomes dx, which the leaf keeps.
    CHECK(device->take_high_water() - held <= 2 * tensor + tensor / 8);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "group_norm: partial sums stay small where samples have few rows" *
                                 doctest::test_suite("host")) {
  const Tensor x = full({40000, 15}, 0.5f).set_requires_grad();
  const uint64_t before = device->live(), slack = uint64_t{5} << 20;
  device->take_high_water();
  sum(group_norm(x, 5)).backward();
  // y, dy and x.grad have 2.3 MiB each, the statistics 1.5 MiB; all moments at once would be 6.9
  // MiB.
  CHECK(device->take_high_water() - before <= 2 * x.bytes() + slack);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "group_norm: refuses what it cannot do" * doctest::test_suite("host")) {
  const Tensor x = full({2, 3, 6}, 1);
  CHECK(contains(message_of<ShapeError>([&] { group_norm(x, 4); }),
                 "[group_norm] groups must divide the channels, got 4 for f32 (2, 3, 6)"));
  CHECK(contains(message_of<ShapeError>([&] { group_norm(x, 0); }), "groups must divide"));
  CHECK(contains(message_of<ShapeError>([&] { group_norm(x, 2, full({5}, 1)); }),
                 "[group_norm] weight and bias must be float [C], got f32 (5)"));
  CHECK(contains(message_of<ShapeError>([&] {
                   instance_norm(full({2, 1, 6}, 1));
                 }),
                 "[instance_norm] needs more than one element per sample and channel"));
  CHECK_THROWS_AS(group_norm(full({2, 3, 6}, 1, DType::i32), 2), DTypeError);
}

}  // namespace rw::test
