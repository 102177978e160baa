// Compares shape arithmetic with the enumeration of all elements.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/base/error.h"
#include "core/base/shape.h"

namespace rw::test {

namespace {

// Returns element offsets of a strided view in row-major order.
std::vector<int64_t> offsets(const Shape& shape, const Strides& strides) {
  std::vector<int64_t> all = {0};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    std::vector<int64_t> next;
    for (const int64_t base : all)
      for (int64_t i = 0; i < shape[axis]; ++i) next.push_back(base + i * strides[axis]);
    all = std::move(next);
  }
  return all;
}

class RandomShapes {
 public:
  explicit RandomShapes(uint32_t seed) : engine_(seed) {}
  int64_t number(int64_t low, int64_t high) {  // both limits included
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  Shape shape(int64_t max_rank, int64_t max_size) {
    Shape s;
    for (int64_t rank = number(0, max_rank); rank > 0; --rank) s.push_back(number(1, max_size));
    return s;
  }
  // Returns strides of a view made from a dense tensor: permuted, stepped, expanded.
  Strides view_strides(const Shape& shape) {
    std::vector<int> order(static_cast<size_t>(shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    if (number(0, 1)) std::shuffle(order.begin(), order.end(), engine_);
    Strides strides = shape;
    int64_t step = 1;
    for (const int axis : order) {
      if (number(0, 3) == 0) step *= number(1, 3);
      strides[axis] = number(0, 4) == 0 ? 0 : step;
      step *= shape[axis];
    }
    return strides;
  }
  // Returns another shape with as many elements.
  Shape refactor(const Shape& shape) {
    std::vector<int64_t> factors;
    int64_t n = shape.numel();
    for (int64_t p = 2; n > 1; ++p)
      for (; n % p == 0; n /= p) factors.push_back(p);
    std::shuffle(factors.begin(), factors.end(), engine_);
    Shape out;
    for (int64_t rank = number(factors.empty() ? 0 : 1, 6); rank > 0; --rank) out.push_back(1);
    for (const int64_t f : factors) out[static_cast<int>(number(0, out.rank() - 1))] *= f;
    return out;
  }

 private:
  std::mt19937 engine_;
};

// Tells whether there are strides that walk `wanted` as `shape`.
bool walkable(const Shape& shape, const std::vector<int64_t>& wanted) {
  const Strides dense = dense_strides(shape);
  Strides strides = shape;
  for (int i = 0; i < shape.rank(); ++i)
    strides[i] = shape[i] == 1 ? 0 : wanted[static_cast<size_t>(dense[i])] - wanted[0];
  return offsets(shape, strides) == wanted;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("shape: broadcast and its strides read the right elements") {
  RandomShapes random(1);
  int compatible = 0;
  for (int round = 0; round < 2000; ++round) {
    const Shape a = random.shape(4, 3), b = random.shape(4, 3);
    const int rank = std::max(a.rank(), b.rank());
    const auto size = [&](const Shape& s, int axis) {
      return axis < rank - s.rank() ? 1 : s[axis - (rank - s.rank())];
    };
    bool fits = true;
    for (int i = 0; i < rank; ++i)
      fits &= size(a, i) == size(b, i) || size(a, i) == 1 || size(b, i) == 1;
    if (!fits) {
      CHECK_THROWS_AS(broadcast(a, b, "test"), ShapeError);
      continue;
    }
    ++compatible;
    const Shape out = broadcast(a, b, "test");
    REQUIRE(out == broadcast(b, a, "test"));
    for (int i = 0; i < rank; ++i) REQUIRE(out[i] == std::max(size(a, i), size(b, i)));
    // The test goes element by element: the index along axes of size 1 is 0.
    const Strides dense = dense_strides(a);
    Strides expected = out;
    for (int i = 0; i < rank; ++i) expected[i] = size(a, i) == 1 ? 0 : dense[i - (rank - a.rank())];
    REQUIRE(offsets(out, broadcast_strides(a, dense, out)) == offsets(out, expected));
  }
  CHECK(compatible > 100);
  CHECK(broadcast({0, 1}, {1, 3}, "test") == Shape{0, 3});
  CHECK_THROWS_WITH_AS(broadcast({2, 3}, {4}, "add"),
                       "[add] shapes must broadcast together, got (2, 3) and (4)", ShapeError);
}

TEST_CASE("shape: reshape_strides keeps the order of elements and copies only when it must") {
  RandomShapes random(2);
  int views = 0, copies = 0;
  for (int round = 0; round < 4000; ++round) {
    const Shape shape = random.shape(5, 4);
    const Strides strides = random.view_strides(shape);
    const Shape target = random.refactor(shape);
    const auto result = reshape_strides(shape, strides, target);
    const std::vector<int64_t> wanted = offsets(shape, strides);
    INFO(shape.str() << " with strides " << strides.str() << " as " << target.str());
    REQUIRE(result.has_value() == walkable(target, wanted));
    if (result) REQUIRE(offsets(target, *result) == wanted);
    ++(result ? views : copies);
  }
  CHECK(views > 500);
  CHECK(copies > 500);
}

TEST_CASE("shape: collapse keeps every element and leaves nothing to merge") {
  RandomShapes random(3);
  for (int round = 0; round < 3000; ++round) {
    const Shape shape = random.shape(6, 3);
    const Strides before[] = {random.view_strides(shape), random.view_strides(shape)};
    Shape merged = shape;
    Strides after[] = {before[0], before[1]};
    collapse(merged, after);
    for (int k = 0; k < 2; ++k) REQUIRE(offsets(merged, after[k]) == offsets(shape, before[k]));
    for (int i = 0; i < merged.rank(); ++i) REQUIRE(merged[i] != 1);
    for (int i = 0; i + 1 < merged.rank(); ++i) {
      bool joins = true;
      for (const Strides& s : after) joins &= s[i] == s[i + 1] * merged[i + 1];
      REQUIRE_FALSE(joins);
    }
  }
}

TEST_CASE("shape: dense strides, axes and limits") {
  RandomShapes random(4);
  for (int round = 0; round < 500; ++round) {
    const Shape shape = random.shape(6, 3);
    const std::vector<int64_t> all = offsets(shape, dense_strides(shape));
    for (size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == static_cast<int64_t>(i));
    const Strides strides = random.view_strides(shape);
    REQUIRE(is_dense(shape, strides) == (offsets(shape, strides) == all));
  }
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{3, 0, 2}.numel() == 0);
  CHECK(normalize_axis(-1, 3, "op") == 2);
  CHECK_THROWS_AS(normalize_axis(3, 3, "op"), ShapeError);
  CHECK_THROWS_AS(normalize_axis(-4, 3, "op"), ShapeError);
  const std::vector<int> axes = {-1, 0}, twice = {1, -2};
  CHECK(normalize_axes(axes, 3, "op") == std::vector<int>{0, 2});
  CHECK_THROWS_AS(normalize_axes(twice, 3, "op"), ShapeError);
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5, 6, 7}), ShapeError);
  CHECK_THROWS_AS((Shape{2, -1}), ShapeError);
}

TEST_SUITE_END();

}  // namespace rw::test
