// Hooks on gradients, and retain_grad().
#include "core/autograd/gradients.h"
#include "nn/layers.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::CpuDevice;
using test::leaf;
using test::message_of;

namespace {

using Values = std::vector<float>;

Values times(Values values, float factor) {
  for (float& v : values) v *= factor;
  return values;
}

TEST_SUITE_BEGIN("host");

TEST_CASE("hooks: see a gradient once, and may replace it") {
  const CpuDevice device;
  const Tensor a = leaf(4), b = leaf(4);
  std::vector<Values> seen;
  const auto see = [&](const Tensor& g) {
    seen.push_back(g.to_vector());
    return Tensor();
  };
  sum(a * a * b).backward();
  const Values plain = a.grad().to_vector(), plain_b = b.grad().to_vector();
  a.impl().grad = {}, b.impl().grad = {};

  HookHandle first = a.register_hook(see);
  HookHandle doubled = a.register_hook([](const Tensor& g) { return g * 2.0f; });
  a.register_hook(see);
  Tensor h = a * a;
  h.register_hook([](const Tensor& g) { return g * 3.0f; });
  Tensor y = sum(h * b);
  h = {};  // the tape keeps the hook
  y.backward();
  // a is read twice: one call with the sum.
  REQUIRE(seen.size() == 2);
  CHECK(seen[0] == times(plain, 3));
  CHECK(seen[1] == times(plain, 6));
  CHECK(a.grad().to_vector() == times(plain, 6));
  CHECK(b.grad().to_vector() == plain_b);

  doubled.remove();
  first.remove();
  sum(a * a * b).backward();  // added to the existing gradient
  CHECK(seen.size() == 3);
  CHECK(seen[2] == plain);
  CHECK(a.grad().to_vector() == times(plain, 7));
  b.register_hook([](const Tensor&) { return zeros({3}); });
  CHECK(test::contains(message_of<ShapeError>([&] { sum(a * b).backward(); }), "same shape"));
  CHECK_THROWS_AS(b.detach().register_hook(see), AutogradError);
}

TEST_CASE("hooks: of a weight whose products add to its gradient") {
  const CpuDevice device;
  Tensor weight = full({4, 4}, 0.5f);
  weight.set_requires_grad();
  const Tensor x = full({3, 4}, 2);
  const auto run = [&] { sum(linear(x, weight)).backward(); };
  run();
  const Values plain = weight.grad().to_vector();
  const HookHandle doubled = weight.register_hook([](const Tensor& g) { return g * 2.0f; });
  run();
  CHECK(weight.grad().to_vector() == times(plain, 3));
}

TEST_CASE("hooks: of a result stay when the record before it is freed") {
  const CpuDevice device;
  const Tensor a = leaf(4);
  int calls = 0;
  Tensor before = a * 2.0f;
  const Tensor h = a * 3.0f;
  h.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  before = {};
  sum(h).backward();
  CHECK(calls == 1);
}

TEST_CASE("hooks and grad: gradients of a 16-bit result are 16-bit, however they come") {
  const CpuDevice device;
  const Tensor x = full({3, 4}, 0.5f, DType::f16);
  const Tensor w = reshape(leaf(16).detach(), {4, 4}).detach().set_requires_grad();
  const Tensor h = cast(w, DType::f16);
  std::vector<DType> seen;
  h.register_hook([&](const Tensor& g) {
    seen.push_back(g.dtype());
    return Tensor();
  });
  const Tensor product = sum(cast(linear(x, h), DType::f32));  // a weight's gradient is f32
  seen.push_back(grad({product}, {h}, {.retain = true})[0].dtype());
  product.backward();
  CHECK(seen == std::vector<DType>(3, DType::f16));
}

TEST_CASE("hooks: one that calls backward, or removes itself") {
  const CpuDevice device;
  const Tensor a = leaf(4);
  const Tensor other = sum(a * 2.0f);
  HookHandle bad = a.register_hook([&](const Tensor&) {
    other.backward();
    return Tensor();
  });
  CHECK(test::contains(message_of<AutogradError>([&] { sum(a * a).backward(); }), "or a hook"));
  bad.remove();
  int calls = 0;
  HookHandle once;
  once = a.register_hook([&](const Tensor&) {
    ++calls;
    once.remove();
    return Tensor();
  });
  sum(a * a).backward();
  sum(a * a).backward();
  CHECK(calls == 1);
}

TEST_CASE("post accumulate hooks: called once with the whole gradient, while backward goes on") {
  const CpuDevice device;
  const Tensor x = leaf(4).detach();
  const Tensor first = leaf(4), second = leaf(4), unused = leaf(4);
  const Tensor aside = unused * 2.0f;  // reads it, but no gradient passes here
  const auto run = [&] {
    const Tensor h = x * first;
    sum(h * second * second + (h * first) * 0.5f).backward();
  };
  run();
  const Values of_first = first.grad().to_vector(), of_second = second.grad().to_vector();
  for (const Tensor& t : {first, second}) t.impl().grad = {};

  std::vector<std::string> order;
  unused.register_post_accumulate_grad_hook([&](const Tensor&) { order.push_back("unused"); });
  HookHandle keeps = second.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    order.push_back("second");
    CHECK(leaf.grad().to_vector() == of_second);
    CHECK(!first.grad().defined());  // it is not complete yet
    // It may be dropped, and the leaf changed: nothing reads it any more.
    Tensor(leaf).set_grad({});
    Tensor(leaf).copy_(leaf.detach() * 2.0f);
  });
  first.register_hook([&](const Tensor& g) {
    order.push_back("hook");
    return g * 2.0f;
  });
  first.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    order.push_back("first");
    CHECK(leaf.grad().to_vector() == times(of_first, 2));
  });
  run();
  CHECK(order == std::vector<std::string>{"second", "hook", "first"});
  CHECK(!second.grad().defined());
  keeps.remove();
  order.clear();
  (void)grad({sum(x * first * second)}, {second});  // changes no leaf
  CHECK(order.empty());
  const Tensor root = leaf(4);
  root.register_post_accumulate_grad_hook([&](const Tensor&) { order.push_back("root"); });
  root.backward(full({4}, 1.0f));  // no record reads it
  CHECK(order == std::vector<std::string>{"root"});
  const Tensor h = first * 2.0f;
  CHECK_THROWS_AS(h.register_post_accumulate_grad_hook([](const Tensor&) {}), AutogradError);
  CHECK_THROWS_AS(x.register_post_accumulate_grad_hook([](const Tensor&) {}), AutogradError);
}

TEST_CASE("post accumulate hooks: of the leaf of a single record") {
  on_each_device([] {
    Tensor x = tensor({1, 2}, {2}).set_requires_grad();
    std::vector<std::vector<float>> seen;
    x.register_post_accumulate_grad_hook(
        [&](const Tensor& leaf) { seen.push_back(leaf.grad().to_vector()); });
    sum(x).backward();
    CHECK(seen == std::vector<std::vector<float>>{{1, 1}});
  });
}

TEST_CASE("post accumulate hooks: a leaf that dropped records read changes after their replay") {
  const CpuDevice device;
  const Tensor w = leaf(4);
  const Tensor x = leaf(4).detach();
  const auto run = [&](bool segments) {
    Tensor h = x;
    for (int i = 0; i < 3; ++i) {
      const CheckpointScope scope(segments);
      const Tensor aside = tanh(h * w).detach();  // no gradient passes here, but its value is read
      h = tanh(h * w) * aside;
    }
    sum(h).backward();
  };
  run(false);
  const Values plain = w.grad().to_vector(), before = w.to_vector();
  w.impl().grad = {};
  int calls = 0;
  w.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    ++calls;
    Tensor(leaf).copy_(leaf.detach() - leaf.grad());
  });
  run(true);
  CHECK(calls == 1);
  CHECK(w.grad().to_vector() == plain);
  Values expected = before;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] -= plain[i];
  CHECK(w.to_vector() == expected);
}

TEST_CASE("grad and hooks: the same under checkpoint segments and eviction") {
  const CpuDevice device;
  const Tensor w1 = leaf(12), w2 = leaf(12);
  const Tensor x = reshape(leaf(12).detach(), {3, 4});
  std::vector<Values> seen;
  const auto run = [&](int mode) {
    seen.clear();
    Tensor h, y;
    {
      const CheckpointScope outer(mode > 0);
      h = tanh(matmul(x, reshape(w1, {4, 3})));
      const CheckpointScope inner(mode > 1);
      h.register_hook([&](const Tensor& g) {
        seen.push_back(g.to_vector());
        return g * 0.5f;
      });
      y = sum(gelu(matmul(h, reshape(w2, {3, 4}))));
    }
    const auto g = grad({y}, {w1, h, w2});
    return std::vector<Values>{g[0].to_vector(), g[1].to_vector(), g[2].to_vector()};
  };
  const auto plain = run(0);
  const auto plain_seen = seen;
  CHECK(seen.size() == 1);
  for (const int mode : {1, 2}) {
    CHECK(run(mode) == plain);
    CHECK(seen == plain_seen);
  }
}

TEST_CASE("retain_grad: a result keeps its gradient") {
  const CpuDevice device;
  const Tensor a = leaf(4);
  const Tensor h = a * 2.0f;
  h.retain_grad();
  a.retain_grad();  // a leaf retains it anyway
  sum(h * h).backward();
  CHECK(h.grad().to_vector() == times(h.to_vector(), 2));
  CHECK(a.grad().to_vector() == times(h.to_vector(), 4));
}

TEST_SUITE_END();

}  // namespace
