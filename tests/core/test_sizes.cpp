// Sizes that overflow: every way to make a shape refuses them by name before anything is allocated.
#include <limits>

#include "core/base/checked.h"
#include "core/tensor/launch.h"
#include "nn/layers.h"
#include "ops/layout/indexing.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

constexpr int64_t huge = int64_t{1} << 40, largest_int64 = std::numeric_limits<int64_t>::max();

struct SizeMaker {
  const char* op;
  std::function<void()> make;
};

constexpr int64_t large[] = {7, 2347, 4093};  // of i32: 256 MiB and 540132 bytes

// The value of the n-th element; no distance repeats them.
int32_t large_value(int64_t n) {
  return static_cast<int32_t>(static_cast<uint32_t>(n) * 2654435761u);
}

void fill_large(const Tensor& x) {
  std::vector<int32_t> slab(static_cast<size_t>(large[1] * large[2]));
  for (int64_t i = 0, n = 0; i < large[0]; ++i) {
    for (int32_t& v : slab) v = large_value(n++);
    select(x, 0, i).copy_from(slab);
  }
}

// The first element of y, a dense copy of `source`, that is not where it belongs, or -1.
int64_t first_difference(const Tensor& y, const Tensor& source) {
  const int64_t rows = y.size(1), cols = y.size(2);
  const Strides& step = source.strides();
  std::vector<int32_t> slab(static_cast<size_t>(rows * cols));
  const uint64_t bytes = slab.size() * sizeof slab[0];
  for (int64_t i = 0; i < y.size(0); ++i) {
    y.device().read(*y.impl().storage, static_cast<uint64_t>(i) * bytes, bytes, slab.data());
    for (int64_t j = 0; j < rows; ++j) {
      const int32_t* row = slab.data() + j * cols;
      const int64_t begin = i * step[0] + j * step[1];
      bool differs = false;
      for (int64_t k = 0; k < cols; ++k) differs |= row[k] != large_value(begin + k * step[2]);
      if (differs) return (i * rows + j) * cols;
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("sizes: layouts of more than 256 MiB with odd sizes") {
  on_each_device([] {
    const Tensor x = empty({large[0], large[1], large[2]}, DType::i32);
    fill_large(x);
    for (const Axes& axes : {Axes{1, 0, 2}, Axes{2, 0, 1}}) {
      CAPTURE(axes[0]);
      const Tensor view = permute(x, axes);
      CHECK(first_difference(contiguous(view), view) == -1);
    }
  });
}

TEST_CASE_FIXTURE(CpuDevice, "sizes: what 63 bits do not hold is refused by name" *
                                 doctest::test_suite("host")) {
  // 3 * 6148914691236517206 is 2 in 64 bits.
  const Shape wraps = {3, 6148914691236517206}, square = {huge, huge},
              empty_but_huge = {0, huge, huge};
  const Tensor x = zeros({4, 1});
  const std::vector<float> two(2);
  const std::vector<int32_t> two_ints(2);
  const std::vector<uint8_t> two_bytes(2);
  const Tensor wide = expand(zeros({1}), {huge}), tall = expand(zeros({1, 1}), {huge, 1});
  const SizeMaker makers[] = {
      {"zeros", [&] { zeros(wraps); }},
      {"zeros", [&] { zeros(square); }},
      {"zeros", [&] { zeros(empty_but_huge); }},
      {"zeros",
       [&] {
         zeros({huge, huge, 0});
       }},
      {"zeros", [&] { zeros({largest_int64}); }},  // of 4 bytes
      {"ones", [&] { ones(wraps); }},
      {"full", [&] { full(square, 2); }},
      {"empty", [&] { empty(wraps, DType::u8); }},
      {"rand", [&] { rand(square); }},
      {"randn", [&] { randn(wraps); }},
      {"arange", [&] { arange(int64_t{1} << 33); }},
      {"arange", [&] { arange((int64_t{1} << 31) + 1); }},
      {"arange", [&] { arange(-1); }},
      {"linspace", [&] { linspace(0, 1, int64_t{1} << 62); }},
      {"linspace", [&] { linspace(0, 1, largest_int64, DType::f16); }},
      {"linspace", [&] { linspace(0, 1, -1); }},
      {"eye", [&] { eye(int64_t{1} << 31); }},
      {"eye", [&] { eye(largest_int64, 1); }},
      {"eye", [&] { eye(-1); }},
      {"one_hot", [&] { one_hot(zeros({4}, DType::i32), largest_int64 / 2); }},
      {"repeat",
       [&] {
         repeat(x, {3, largest_int64 / 4});
       }},
      {"repeat",
       [&] {
         repeat(x, {largest_int64, 1});
       }},
      {"repeat",
       [&] {
         tile(x, {huge, huge});
       }},
      {"repeat_interleave", [&] { repeat_interleave(x, largest_int64, 0); }},
      {"repeat_interleave", [&] { repeat_interleave(x, largest_int64 / 4, 1); }},
      {"tensor", [&] { tensor(two, wraps); }},
      {"tensor", [&] { tensor(two_ints, wraps); }},
      {"tensor", [&] { tensor(two_bytes, square); }},
      {"reshape",
       [&] {
         reshape(x, Shape{4, 1 + (int64_t{1} << 62)});
       }},
      {"reshape",
       [&] {
         reshape(x, {huge, huge, -1});
       }},
      {"reshape",
       [&] {
         reshape(zeros({0}), {0, huge, huge});
       }},
      {"reshape",
       [&] {
         reshape(x, {-2, -2});
       }},
      {"expand",
       [&] {
         expand(x, {4, largest_int64});
       }},
      {"expand",
       [&] {
         expand(x, {huge, 4, huge});
       }},
      {"expand", [&] { expand(zeros({1}), {int64_t{1} << 61}); }},  // 2^63 bytes
      {"unsqueeze",
       [&] {
         unsqueeze(zeros({1, 1, 1, 1, 1, 1}), 0);
       }},
      {"concat",
       [&] {
         concat(std::vector<Tensor>(8, expand(zeros({1}, DType::u8), {largest_int64 / 4})), 0);
       }},
      {"concat",
       [&] {
         stack(std::vector<Tensor>(2, expand(zeros({1}, DType::u8), {largest_int64 / 2 + 1})), 0);
       }},
      {"pad",
       [&] {
         pad(x, {0, largest_int64}, {0, 0});
       }},
      {"pad",
       [&] {
         pad(x, {0, largest_int64 - 1}, {0, 0});
       }},
      {"add",
       [&] {
         wide + reshape(tall, {huge, 1});
       }},
      {"less", [&] { less(wide, tall); }},
      {"where", [&] { where(zeros({1}, DType::u8), wide, tall); }},
      {"matmul", [&] { matmul(tall, transpose(tall, 0, 1)); }},
      {"linear", [&] { linear(tall, tall); }},
      {"embedding",
       [&] {
         embedding(zeros({0, huge}), zeros({1 << 22}, DType::i32));
       }},
      {"conv2d",
       [&] {
         conv2d(expand(zeros({1, 1, 1, 1}), {huge, 1, 1, 1}),
                expand(zeros({1, 1, 1, 1}), {huge, 1, 1, 1}));
       }},
      {"conv2d",
       [&] {
         conv2d(zeros({1, 4, 4, 1}), expand(zeros({1, 1, 1, 1}), {1, largest_int64 / 8, 1, 1}),
                Conv2dOptions{.dilation = std::numeric_limits<int>::max()});
       }},
      {"max_pool2d",
       [&] {
         max_pool2d(zeros({1, 4, 4, 1}), {.kernel = std::numeric_limits<int>::max(),
                                          .dilation = std::numeric_limits<int>::max()});
       }},
      {"view",
       [&] {
         make_view(x, {2, 2}, {huge, huge}, 0);
       }},
      {"view",
       [&] {
         make_view(x, {2, 2}, {largest_int64, largest_int64}, 0);
       }},
      {"view", [&] { make_view(x, {5}, {1}, 0); }},
      {"view", [&] { make_view(x, {4}, {1}, 1); }},
      {"view", [&] { make_view(x, {4}, {1}, -1); }},
  };
  const uint64_t before = live();
  for (const SizeMaker& m : makers) {
    const std::string message = message_of<ShapeError>(m.make);
    CAPTURE(m.op);
    CAPTURE(message);
    if (m.op != std::string_view("unsqueeze")) CHECK(contains(message, fmt::format("[{}] ", m.op)));
    CHECK(contains(message, "("));
    CHECK(live() == before);
  }
  CHECK(contains(message_of<ShapeError>([&] { zeros(wraps); }), wraps.str()));
  CHECK(contains(message_of<ShapeError>([&] { zeros({-1, 3}); }), "(-1, 3)"));
  CHECK_THROWS_AS(Linear(huge, huge), ShapeError);
  CHECK_THROWS_AS(wraps.numel(), ShapeError);
  CHECK_THROWS_AS(dense_strides(square), ShapeError);
}

TEST_CASE_FIXTURE(CpuDevice, "sizes: large but possible" * doctest::test_suite("host")) {
  // A view of a small storage may be as large as it likes, and be used if that costs nothing.
  const Tensor wide = expand(full({1}, 3), {huge});
  CHECK(wide.numel() == huge);
  CHECK(slice(wide, 0, huge - 2, huge).to_vector() == std::vector<float>{3, 3});
  CHECK(slice(wide, 0, 0, huge, largest_int64).to_vector() == std::vector<float>{3});
  CHECK(slice(arange(5), 0, 1, 5, largest_int64).to_ints() == std::vector<int32_t>{1});
  CHECK(split(arange(5), largest_int64, 0).size() == 1);
  // In empty tensors, the sizes that are not 0 stay within the limit.
  CHECK(zeros({0, huge}).numel() == 0);
  CHECK(reshape(zeros({0, huge}), {huge, 0}).numel() == 0);
  CHECK(transpose(zeros({0, huge}), 0, 1).to_vector().empty());
  CHECK(arange(0).numel() == 0);
  CHECK(arange((1 << 20) + 3).to_ints().back() == (1 << 20) + 2);
  // More elements than kernels can count are an error, too, not a part of the result.
  CHECK_THROWS_AS(contiguous(wide), Error);
  CHECK_THROWS_AS(sum(wide), Error);
  CHECK_THROWS_AS(zeros({huge}), Error);
  CHECK_THROWS_AS(zeros({huge, 1 << 20}), Error);
  CHECK_THROWS_AS(linspace(0, 1, huge), Error);
  CHECK_THROWS_AS(eye(1 << 20, 1 << 20), Error);
  CHECK_THROWS_AS(arange(-largest_int64, largest_int64, 1), ValueError);
  CHECK_THROWS_AS(arange(0, largest_int64, 1), ValueError);
  CHECK(arange(0, 5, largest_int64).to_ints() == std::vector<int32_t>{0});
  CHECK(arange(2147483647, -2147483648LL, -largest_int64 - 1).to_ints() ==
        std::vector<int32_t>{2147483647});
  CHECK(arange(5, -2, -3).to_ints() == std::vector<int32_t>{5, 2, -1});
  const std::vector<float> line = linspace(-1, 1, (1 << 20) + 1).to_vector();
  CHECK(line.front() == -1);
  CHECK(line[1 << 19] == 0);
  CHECK(line.back() == 1);
}

TEST_CASE("sizes: the last element of a view" * doctest::test_suite("host")) {
  CHECK(last_element({2, 3}, {3, 1}, 4) == 10);
  CHECK(last_element({}, {}, 4) == 5);
  CHECK(last_element({0, 3}, {3, 1}, 4) == 4);
  CHECK(!last_element({2, 3}, {3, 1}, -1));
  CHECK(!last_element({2}, {largest_int64}, 1));
  CHECK(!last_element({3}, {largest_int64 / 2 + 1}, 0));
}

}  // namespace rw::test
