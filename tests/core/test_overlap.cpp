// Views that share elements: a copy between them goes by way of a third place, and writing twice to
// one place is refused.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "core/tensor/overlap.h"
#include "nn/init.h"
#include "ops/layout/indexing.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

// Returns 0, 1, 2, ... in this shape.
Tensor counting(const Shape& shape, DType dtype = DType::f32) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0f);
  Tensor t = empty(shape, dtype);
  t.copy_from(values);
  return t;
}

using View = std::function<Tensor(const Tensor&)>;

// Copies one view of a tensor onto another, and does the same by way of the host.
void check_copy(const Shape& shape, DType dtype, const View& from, const View& to) {
  const Tensor x = counting(shape, dtype), expected = counting(shape, dtype);
  const Tensor source = from(expected);
  Tensor apart = empty(source.shape(), dtype);
  apart.copy_from(source.to_vector());
  to(expected).copy_(apart);
  to(x).copy_(from(x));
  const std::vector<float> got = x.to_vector(), wanted = expected.to_vector();
  const auto place = std::ranges::mismatch(got, wanted).in1 - got.begin();
  INFO(fmt::format("{}, {} onto {}: element {}", x, source, to(x), place));
  CHECK(got == wanted);
}

}  // namespace

TEST_CASE("overlap: copies between overlapping views") {
  on_each_device([] {
    const auto part = [](int axis, int64_t begin, int64_t end, int64_t step = 1) {
      return View([=](const Tensor& t) { return slice(t, axis, begin, end, step); });
    };
    const View whole = [](const Tensor& t) { return t; };
    const View turned = [](const Tensor& t) { return transpose(t, 0, 1); };
    const View first_row = [](const Tensor& t) { return expand(slice(t, 0, 0, 1), t.shape()); };
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
      check_copy({6}, dtype, part(0, 0, 5), part(0, 1, 6));
      check_copy({6}, dtype, part(0, 1, 6), part(0, 0, 5));
      check_copy({300}, dtype, part(0, 0, 296), part(0, 4, 300));
      check_copy({300}, dtype, part(0, 0, 150), part(0, 0, 300, 2));
      check_copy({11, 24}, dtype, part(0, 0, 10), part(0, 1, 11));
      check_copy({11, 24}, dtype, part(1, 8, 24), part(1, 0, 16));
      check_copy({11, 24}, dtype, part(1, 0, 12), part(1, 12, 24));  // side by side
      check_copy({40, 40}, dtype, turned, whole);
      check_copy({5, 7}, dtype, first_row, whole);
      check_copy({5, 7}, dtype, whole, whole);
    }
  });
}

TEST_CASE("overlap: elements that are one in memory are not written") {
  on_each_device([] {
    Tensor one = zeros({1}), row = zeros({1, 3});
    Tensor x = counting({9});
    const auto refused = [](const std::function<void()>& write, const char* where) {
      const std::string message = message_of<ValueError>(write);
      CHECK(contains(message, where));
      CHECK(contains(message, "must not overlap in memory"));
    };
    refused([&] { expand(one, {4}).copy_(ones({4})); }, "[copy_]");
    refused([&] { expand(row, {4, 3}).copy_(ones({4, 3})); }, "[copy_]");
    refused([&] { transpose(expand(row, {4, 3}), 0, 1).copy_(ones({3, 4})); }, "[copy_]");
    refused([&] { unfold(x, 0, 4, 2).copy_(ones({3, 4})); }, "[copy_]");
    refused([&] { copy_into(ones({4}), expand(one, {4})); }, "[copy]");
    CHECK(one.to_vector() == std::vector<float>{0});
    CHECK(x.to_vector() == counting({9}).to_vector());
    unfold(x, 0, 3, 3).copy_(ones({3, 3}));  // windows that do not overlap
    CHECK(x.to_vector() == std::vector<float>(9, 1));
    // Functions that write only dense tensors say so.
    CHECK_THROWS_AS(fill_(expand(one, {4}), 1), ShapeError);
    CHECK_THROWS_AS(accumulate(ones({4}), expand(one, {4})), DTypeError);
    CHECK_THROWS_AS(expand(one, {4}).copy_from(std::vector<float>(4)), ShapeError);
    const float value = 1;
    CHECK_THROWS_AS(write_elements(expand(one, {4}), 1, 1, &value), ShapeError);
    CHECK(one.to_vector() == std::vector<float>{0});
  });
}

TEST_CASE("overlap: a kernel's result lies apart from its operands, or is one of them") {
  on_each_device([] {
    const Tensor x = counting({20});
    const auto matrix = [&](int64_t begin) {
      return reshape(slice(x, 0, begin, begin + 4), {2, 2});
    };
    multiply_into(matrix(0), matrix(4), matrix(8));
    const std::string message =
        message_of<ValueError>([&] { multiply_into(matrix(0), matrix(4), matrix(6)); });
    CHECK(contains(message, "[matmul] an operand that is written must not overlap another one"));
    CHECK_THROWS_AS(copy_dense(slice(x, 0, 0, 4), slice(x, 0, 2, 6)), ValueError);
  });
}

TEST_CASE_FIXTURE(CpuDevice, "overlap: which views share elements" * doctest::test_suite("host")) {
  const Tensor x = zeros({6, 8});
  const auto rows = [&](int64_t begin, int64_t end) { return slice(x, 0, begin, end); };
  const auto columns = [&](int64_t begin, int64_t end) { return slice(x, 1, begin, end); };
  CHECK(extent(columns(2, 5)) == 5 * 8 + 3);
  CHECK_FALSE(overlaps_itself(transpose(columns(2, 5), 0, 1)));
  CHECK(overlaps_itself(expand(columns(0, 1), {6, 2})));
  CHECK_FALSE(overlaps_itself(expand(columns(0, 0), {6, 0})));
  CHECK_FALSE(overlaps_itself(make_view(x, {2, 2}, {3, 2}, 0)));  // 0, 2, 3, 5
  CHECK(overlaps_itself(make_view(x, {2, 3}, {4, 2}, 0)));        // 4 twice
  CHECK_FALSE(overlap_in_part(x, zeros({6, 8})));
  CHECK_FALSE(overlap_in_part(x, x.detach()));
  CHECK_FALSE(overlap_in_part(x, reshape(x, {48})));
  CHECK(overlap_in_part(x, rows(0, 5)));
  CHECK(overlap_in_part(x, rows(1, 6)));
  CHECK_FALSE(overlap_in_part(rows(0, 2), rows(2, 6)));
  CHECK_FALSE(overlap_in_part(columns(0, 2), columns(2, 6)));
  const Tensor none = make_view(x, {0, 8}, {8, 1}, 24);
  CHECK_FALSE(overlap_in_part(none, x));
  CHECK_FALSE(overlap_in_part(x, none));
  CHECK(overlap_in_part(columns(0, 3), columns(2, 6)));
  CHECK(overlap_in_part(columns(0, 3), rows(2, 3)));
  CHECK(overlap_in_part(reshape(rows(0, 1), {2, 4}), transpose(reshape(rows(0, 1), {2, 4}), 0, 1)));
}

TEST_CASE_FIXTURE(CpuDevice, "overlap: views of any strides that share an element are found" *
                                 doctest::test_suite("host")) {
  const Tensor x = zeros({64});
  std::mt19937 random(4);
  const auto view = [&] {
    Shape shape, strides;
    for (uint32_t axes = 1 + random() % 2; axes > 0; --axes) {
      shape.push_back(1 + random() % 4);
      strides.push_back(random() % 7);
    }
    return make_view(x, shape, strides, random() % 9);
  };
  const auto elements = [](const Tensor& t) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < t.numel(); ++i) {
      int64_t place = t.impl().offset, rest = i;
      for (int axis = t.rank() - 1; axis >= 0; rest /= t.size(axis), --axis)
        place += rest % t.size(axis) * t.strides()[axis];
      all.push_back(place);
    }
    return all;
  };
  int several = 0, shared = 0, apart = 0;
  for (int round = 0; round < 3000; ++round) {
    const Tensor a = view(), b = view();
    INFO(fmt::format("{} {} + {}, {} {} + {}", a.shape().str(), a.strides().str(), a.impl().offset,
                     b.shape().str(), b.strides().str(), b.impl().offset));
    const std::vector<int64_t> of_a = elements(a), of_b = elements(b);
    if (std::set(of_a.begin(), of_a.end()).size() < of_a.size()) {
      CHECK(overlaps_itself(a));
      ++several;
    }
    const bool meet = std::ranges::find_first_of(of_a, of_b) != of_a.end();
    if (meet && of_a != of_b) CHECK(overlap_in_part(a, b));
    shared += meet;
    apart += !overlap_in_part(a, b);
  }
  CHECK(several > 500);
  CHECK(shared > 500);
  CHECK(apart > 500);
}

}  // namespace rw::test
