// A leaf's gradient has memory of its own, whatever it was made from, so that adding to it changes
// nothing else.
#include <functional>
#include <set>

#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::CpuDevice;
using test::leaf;

namespace {

using Values = std::vector<float>;

// Checks the leaves' gradients after one backward, and after a second one of the same function,
// which adds to them. `held` returns other tensors that may share a gradient's memory.
void check_own_memory(const std::string& what, const std::vector<Tensor>& leaves,
                      const std::function<void(std::vector<Tensor>&)>& backward) {
  CAPTURE(what);
  std::vector<Tensor> held;
  std::vector<Values> once, held_once;
  backward(held);
  for (const Tensor& t : leaves) once.push_back(t.grad().to_vector());
  for (const Tensor& t : held) held_once.push_back(t.to_vector());

  std::set<const Storage*> storages;
  for (const Tensor& t : held) storages.insert(t.impl().storage.get());
  for (const Tensor& t : leaves) {
    CHECK(t.grad().dtype() == DType::f32);
    CHECK(t.grad().is_contiguous());
    CHECK(t.grad().impl().storage->bytes() == t.grad().bytes());  // and no part of another's
    CHECK_MESSAGE(storages.insert(t.grad().impl().storage.get()).second,
                  "a gradient lies in memory that others have, too");
  }

  std::vector<Tensor> held_later;
  backward(held_later);
  for (size_t i = 0; i < leaves.size(); ++i) {
    Values twice = once[i];
    for (float& v : twice) v *= 2;
    CHECK(leaves[i].grad().to_vector() == twice);
  }
  for (size_t i = 0; i < held.size(); ++i) CHECK(held[i].to_vector() == held_once[i]);
  for (const Tensor& t : leaves) t.impl().grad = {};
}

TEST_SUITE_BEGIN("host");

TEST_CASE("gradient buffers: leaves of one gradient have one each") {
  const CpuDevice device;
  const Tensor a = leaf(4), b = leaf(4), weight = tensor({1, -0.5f, 2, 0.25f}, {4});
  check_own_memory("a sum gives both the same", {a, b},
                   [&](auto&) { sum((a + b) * weight).backward(); });
  const Tensor both = concat({weight, weight}, 0), square = reshape(weight, {2, 2});
  const Tensor matrix = (square * 3.0f).set_requires_grad();
  check_own_memory("a transposed view of one", {matrix},
                   [&](auto&) { sum(transpose(matrix, 0, 1) * square).backward(); });
  check_own_memory("and through views", {a, b}, [&](auto&) {
    sum((reshape(a, {2, 2}) + transpose(reshape(b, {2, 2}), 0, 1)) * square).backward();
  });
  check_own_memory("parts of one", {a, b}, [&](auto&) {
    sum(concat({a, b}, 0) * both).backward();
  });
  check_own_memory("the first part of one", {a}, [&](auto&) {
    sum(concat({a, b.detach()}, 0)).backward();
  });
  check_own_memory("one that is expanded", {a}, [&](auto&) { sum(a).backward(); });
  check_own_memory("a leaf that is used twice", {a},
                   [&](auto&) { sum(a * weight + a).backward(); });
}

TEST_CASE("gradient buffers: what others hold is theirs") {
  const CpuDevice device;
  const Tensor a = leaf(4), b = leaf(4), weight = tensor({1, -0.5f, 2, 0.25f}, {4});
  check_own_memory("the caller's seed", {a, b}, [&](std::vector<Tensor>& held) {
    held = {weight * 2.0f};
    (a + b).backward(held[0]);
  });
  check_own_memory("the seed of a leaf", {a}, [&](std::vector<Tensor>& held) {
    held = {weight * 2.0f};
    a.backward(held[0]);
  });
  check_own_memory("a view of the seed", {a}, [&](std::vector<Tensor>& held) {
    held = {weight * 2.0f};
    reshape(a, {2, 2}).backward(reshape(held[0], {2, 2}));
  });
  check_own_memory("a gradient that a result retains", {a, b}, [&](std::vector<Tensor>& held) {
    const Tensor y = a + b;
    y.retain_grad();
    sum(y * weight).backward();
    held = {y.grad()};
  });
  check_own_memory("one that a hook keeps", {a}, [&](std::vector<Tensor>& held) {
    const Tensor y = a * 1.0f;
    HookHandle of_leaf = a.register_hook([&](const Tensor& g) {
      held.push_back(g);
      return Tensor();
    });
    sum(y * weight).backward();
    of_leaf.remove();
  });
  check_own_memory("one that a hook gives", {a}, [&](std::vector<Tensor>& held) {
    held = {weight * 3.0f};
    HookHandle of_leaf = a.register_hook([&](const Tensor&) { return held[0]; });
    sum(a * weight).backward();
    of_leaf.remove();
  });
  for (const int64_t begin : {0, 4}) {
    CAPTURE(begin);
    check_own_memory("a part of what a hook gives, and nobody holds", {a}, [&](auto&) {
      HookHandle of_leaf = a.register_hook([&](const Tensor&) {
        return slice(concat({weight, weight}, 0) * 2.0f, 0, begin, begin + 4);
      });
      sum(a * weight).backward();
      of_leaf.remove();
    });
  }
}

TEST_SUITE_END();

}  // namespace
