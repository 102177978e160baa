// Tensors as text. The values are written as PyTorch 2.14 writes the same ones.
#include <numeric>
#include <sstream>

#include "ops/print.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

Values count_up(int n) {
  Values values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

constexpr float inf = std::numeric_limits<float>::infinity(), nan = NAN;

}  // namespace

TEST_CASE("print: values as PyTorch shows them, then dtype and shape") {
  on_each_device([] {
    CHECK(to_string(tensor({0.1f, -2, 1, 3}, {2, 2})) ==
          "tensor([[ 0.1000, -2.0000],\n"
          "        [ 1.0000,  3.0000]], f32 (2, 2))");
    CHECK(to_string(tensor(count_up(3), {3})) == "tensor([0., 1., 2.], f32 (3))");
    CHECK(to_string(tensor({3.14159265f}, {})) == "tensor(3.1416, f32 ())");
    CHECK(to_string(tensor({1e-5f, 1}, {2})) == "tensor([1.0000e-05, 1.0000e+00], f32 (2))");
    CHECK(to_string(tensor({1e9f, 1}, {2})) == "tensor([1.0000e+09, 1.0000e+00], f32 (2))");
    CHECK(to_string(tensor({1000, 1, 0.25f}, {3})) ==
          "tensor([1.0000e+03, 1.0000e+00, 2.5000e-01], f32 (3))");
    // At most 1e8, and a thousand times the smallest.
    CHECK(to_string(tensor({1e8f, 1e5f}, {2})) == "tensor([100000000.,    100000.], f32 (2))");
    CHECK(to_string(tensor({1e8f}, {1})) == "tensor([100000000.], f32 (1))");
    CHECK(to_string(tensor({0, 0}, {2})) == "tensor([0., 0.], f32 (2))");
    CHECK(to_string(tensor({2e-4f, 3e-4f}, {2})) == "tensor([0.0002, 0.0003], f32 (2))");
    CHECK(to_string(tensor({nan, 1}, {2})) == "tensor([nan, 1.], f32 (2))");
    CHECK(to_string(tensor({nan, 0}, {2})) == "tensor([nan, 0.], f32 (2))");
    CHECK(to_string(tensor({inf, 0.5f, -inf}, {3})) == "tensor([   inf, 0.5000,   -inf], f32 (3))");
    CHECK(to_string(tensor({0.5f, 2, -7}, {3}, DType::f16)) ==
          "tensor([ 0.5000,  2.0000, -7.0000], f16 (3))");
    const std::vector<int32_t> ints = {1, -20, 300};
    CHECK(to_string(tensor(ints, {3})) == "tensor([  1, -20, 300], i32 (3))");
    CHECK(to_string(tensor(count_up(24), {2, 3, 4})) ==
          "tensor([[[ 0.,  1.,  2.,  3.],\n"
          "         [ 4.,  5.,  6.,  7.],\n"
          "         [ 8.,  9., 10., 11.]],\n"
          "\n"
          "        [[12., 13., 14., 15.],\n"
          "         [16., 17., 18., 19.],\n"
          "         [20., 21., 22., 23.]]], f32 (2, 3, 4))");
    CHECK(to_string(tensor(count_up(30), {30}) * 0.37f) ==
          "tensor([ 0.0000,  0.3700,  0.7400,  1.1100,  1.4800,  1.8500,  2.2200,  2.5900,\n"
          "         2.9600,  3.3300,  3.7000,  4.0700,  4.4400,  4.8100,  5.1800,  5.5500,\n"
          "         5.9200,  6.2900,  6.6600,  7.0300,  7.4000,  7.7700,  8.1400,  8.5100,\n"
          "         8.8800,  9.2500,  9.6200,  9.9900, 10.3600, 10.7300], f32 (30))");
    CHECK(to_string(zeros({0, 3})) == "tensor([], f32 (0, 3))");
    CHECK(to_string(Tensor()) == "undefined");
  });
}

TEST_CASE("print: of many elements the edges, of views too") {
  on_each_device([] {
    CHECK(to_string(tensor(count_up(2000), {2000})) ==
          "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,\n"
          "        1.9990e+03], f32 (2000))");
    CHECK(!contains(to_string(tensor(count_up(1000), {1000})), "..."));
    CHECK(contains(to_string(tensor(count_up(1001), {1001})), " ..., "));
    std::vector<int32_t> cycle;
    for (int i = 0; i < 4000; ++i) cycle.push_back(i % 7);
    const std::string expected =
        "tensor([[0, 1, 2,  ..., 5, 6, 0],\n"
        "        [1, 2, 3,  ..., 6, 0, 1],\n"
        "        [2, 3, 4,  ..., 0, 1, 2],\n"
        "        ...,\n"
        "        [0, 1, 2,  ..., 5, 6, 0],\n"
        "        [1, 2, 3,  ..., 6, 0, 1],\n"
        "        [2, 3, 4,  ..., 0, 1, 2]], i32 (10, 400))";
    const Tensor t = tensor(cycle, {10, 400});
    CHECK(to_string(t) == expected);
    CHECK(to_string(transpose(contiguous(transpose(t, 0, 1)), 0, 1)) == expected);
    const std::string blocks = to_string(tensor(count_up(3000), {2, 30, 50}));
    CHECK(contains(blocks,
                   "         [1.4500e+03, 1.4510e+03, 1.4520e+03,  ..., 1.4970e+03,\n"
                   "          1.4980e+03, 1.4990e+03]],\n"
                   "\n"
                   "        [[1.5000e+03, 1.5010e+03,"));
  });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "print: streams, fmt, and nothing on the tape" * doctest::test_suite("host")) {
  const Tensor x = tensor({1, 2}, {2}).set_requires_grad();
  const Tensor y = x * 2.0f;
  const uint64_t records = tape().stats().records, before = live();
  std::ostringstream stream;
  stream << y;
  CHECK(stream.str() == "tensor([2., 4.], f32 (2))");
  CHECK(fmt::format("y = {}", y) == "y = tensor([2., 4.], f32 (2))");
  CHECK(fmt::format("{:>12}", Tensor()) == "   undefined");
  {
    const CheckpointScope scope;
    stream << transpose(full({40, 50}, 1), 0, 1) + y[0];
  }
  CHECK(tape().stats().records == records);
  CHECK(live() == before);
}

TEST_CASE("print: a dry run has no values" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference")->dry());
  CHECK(to_string(ones({2, 3})) == "tensor(no values on a dry run, f32 (2, 3))");
}

}  // namespace rw::test
