// grad(), gradients of intermediate tensors, and gradients of gradients.
#include <cstring>

#include "core/autograd/gradients.h"
#include "nn/layers.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::CpuDevice;
using test::leaf;
using test::message_of;

namespace {

using Values = std::vector<float>;

TEST_SUITE_BEGIN("host");

TEST_CASE("grad: of leaves and of results, without touching grad()") {
  const CpuDevice device;
  const Tensor a = leaf(4), b = leaf(4);
  const auto run = [&] {
    const Tensor h = a * b, y = sum(gelu(h) + h);
    return std::pair(h, y);
  };
  Values da, db;
  {
    const auto [h, y] = run();
    y.backward();
    da = a.grad().to_vector(), db = b.grad().to_vector();
    a.impl().grad = {}, b.impl().grad = {};
  }
  const auto [h, y] = run();
  const std::vector<Tensor> g = grad({y}, {b, h, a, y});
  CHECK(g[0].to_vector() == db);
  CHECK(g[2].to_vector() == da);
  CHECK(g[3].to_vector() == Values{1});
  CHECK((g[1] * a.detach()).to_vector() == db);  // dh * a
  CHECK(!a.grad().defined());
  CHECK(!b.grad().defined());
  CHECK(test::contains(message_of<AutogradError>([&, y = y] { grad({y}, {a}); }), "freed"));
}

TEST_CASE("grad: existing gradients, and the zeros of an optimizer, stay as they are") {
  const CpuDevice device;
  Linear layer(3, 2);
  const Tensor x = tensor({1, 2, 3}, {1, 3});
  sum(layer(x)).backward();
  const Values before = layer.parameters()[0].grad().to_vector();
  const std::vector<Tensor> g = grad({sum(layer(x))}, layer.parameters());
  CHECK(g[0].to_vector() == before);
  CHECK(layer.parameters()[0].grad().to_vector() == before);
}

TEST_CASE("grad: several ys, seeds, repeated use, and what is not between") {
  const CpuDevice device;
  const Tensor a = leaf(4), b = leaf(4), unused = leaf(4);
  const Tensor h = a + b, y = h * h, z = h * 3.0f;
  int calls = 0;
  const Tensor side = relu(b);
  side.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  const Tensor w = sum(side * a);
  const Tensor seed = tensor({1, 2, 3, 4}, {4});
  const auto g = grad({y, z, w}, {h, unused},
                      {.seeds = {seed, seed, {}}, .retain = true, .allow_unused = true});
  CHECK(g[0].to_vector() == (seed * 3.0f + seed * h + seed * h).to_vector());
  CHECK(!g[1].defined());
  CHECK(calls == 0);  // does not lead to h
  CHECK(test::contains(message_of<AutogradError>([&] { grad({w}, {unused}, {.retain = true}); }),
                       "x 0 must be reached"));
  CHECK(grad({w}, {b}, {.retain = true}).size() == 1);
  CHECK(calls == 1);
  CHECK(test::contains(message_of<ShapeError>([&, y = y] { grad({y}, {a}); }), "needs a scalar"));
  CHECK_THROWS_AS(grad({}, {a}), ValueError);
  CHECK_THROWS_AS(grad({w}, {a}, {.seeds = {seed, seed}}), ValueError);
  CHECK_THROWS_AS(grad({w}, {a.detach()}), AutogradError);
  CHECK(!a.grad().defined());
}

TEST_CASE("grad: a result that no gradient reached can become a leaf") {
  const CpuDevice device;
  Tensor y;
  {
    const auto segment = checkpoint();  // is recorded, even so
    y = full({4}, 1) * 2.0f;
    y.set_requires_grad();
    CHECK(y.is_leaf());
  }
  sum(square(y)).backward();
  CHECK(y.grad().to_vector() == Values(4, 4));
  // Reading a view follows its strides.
  const std::vector<std::byte> bytes =
      read_bytes(transpose(tensor({1, 2, 3, 4, 5, 6}, {2, 3}), 0, 1));
  Values values(6);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  CHECK(values == Values{1, 4, 2, 5, 3, 6});
}

TEST_CASE("gradients: of a weight whose casts are read, added up in f32 without the cast's own") {
  const CpuDevice device;
  Tensor weight = full({4, 4}, 0.5f);
  weight.set_requires_grad();
  const Tensor x = full({1, 4}, 2, DType::f16);
  const auto run = [&](int uses, bool is_seen) {
    const Tensor h = cast(weight, DType::f16);
    std::vector<float> seen;
    if (is_seen)
      h.register_hook([&](const Tensor& g) {
        seen.push_back(g.to_vector()[0]);
        return Tensor();
      });
    Tensor y = linear(x, h);
    if (uses > 1) y = y + linear(x, h);
    if (uses > 2) y = y + matmul(x, transpose(h, 0, 1)) + sum(h * h);
    sum(cast(y, DType::f32)).backward();
    return seen;
  };
  run(1, false);
  CHECK(weight.grad().to_vector() == Values(16, 2));
  run(2, false);
  CHECK(weight.grad().to_vector() == Values(16, 6));
  run(3, false);  // y has four elements: 2 + 2 + 2 + 4 * (0.5 + 0.5)
  CHECK(weight.grad().to_vector() == Values(16, 16));
  CHECK(run(2, true) == Values{4});  // a hook has this pass's alone
  CHECK(weight.grad().to_vector() == Values(16, 20));
  weight.set_grad({});
  // The gradient is rounded to the value's type on the way.
  Tensor low = full({4, 4}, 0.5f, DType::f16);
  low.set_requires_grad();
  sum(linear(full({1, 4}, 2049), cast(low, DType::f32))).backward();
  CHECK(low.grad().to_vector() == Values(16, 2048));
}

TEST_CASE("gradients: of products with zeros, and of extremes that tie") {
  const CpuDevice device;
  const auto gradient = [](Values at, auto run) {
    const int64_t n = static_cast<int64_t>(at.size());
    Tensor x = tensor(at, {n});
    x.set_requires_grad(true);
    sum(run(x)).backward();
    return x.grad().to_vector();
  };
  const auto product = [](const Tensor& x) { return prod(x); };
  CHECK(gradient({0, 2, 3}, product) == Values{6, 0, 0});
  CHECK(gradient({0, 2, 0}, product) == Values{0, 0, 0});
  CHECK(gradient({1, 3, 3}, [](const Tensor& x) { return max(x); }) == Values{0, 0.5f, 0.5f});
  const auto products = [](const Tensor& x) { return cumprod(x, 0); };
  CHECK(gradient({2, 0, 3}, products) == Values{1, 8, 0});
  CHECK(gradient({2, 0, 0, 5}, products) == Values{1, 2, 0, 0});
}

TEST_CASE("gradients of gradients: a loss that depends on a gradient is refused") {
  const CpuDevice device;
  const Tensor x = leaf(4);
  const auto refused = [&](const Tensor& loss) {
    const std::string text = message_of<AutogradError>([&] { loss.backward(); });
    CHECK(test::contains(text, "[backward] the tensor must not depend on a gradient"));
    CHECK(test::contains(text, "detach()"));
    const std::string of_grad = message_of<AutogradError>([&] { grad({loss}, {x}); });
    CHECK(test::contains(of_grad, "[grad] the tensor must not depend on a gradient"));
    CHECK(!x.grad().defined());
  };
  {  // the residual of a differential equation
    const Tensor u = tanh(x * 3.0f);
    const Tensor ux = grad({sum(u)}, {x}, {.retain = true})[0];
    CHECK(!ux.requires_grad());
    refused(mean(square(ux - 1.0f)) + mean(square(u)));
    refused(mean(square(ux - 1.0f)));  // nothing else is in the message
    refused(sum(ux * x));
    refused(sum(concat({reshape(ux[{Slice{0, 2}}] * 1.0f, {2}), x}, 0)));
    refused(sum(cast(ux, DType::f16) * cast(x, DType::f16)));
    Tensor y;
    {
      const auto segment = checkpoint();
      y = tanh(ux) * x;
    }
    refused(sum(y));
  }
  {  // from a result, by a hook, by retain_grad() and by grad()
    const Tensor h = x * 2.0f, y = sum(square(h));
    refused(sum(grad({y}, {h}, {.retain = true})[0] * x));
    Tensor seen;
    HookHandle hook = h.register_hook([&](const Tensor& g) {
      seen = g;
      return Tensor();
    });
    h.retain_grad();
    y.backward();
    const Tensor gx = x.grad();
    x.impl().grad = {};
    refused(sum(seen * x));
    refused(sum(h.grad() * x));
    refused(sum(gx * x));
    x.impl().grad_place = zeros({4});
    sum(square(x)).backward();
    const Tensor placed = x.grad();
    x.impl().grad = x.impl().grad_place = {};
    refused(sum(placed * x));
  }
}

TEST_CASE("gradients of gradients: where a gradient is a constant, it is one") {
  const CpuDevice device;
  const Tensor x = leaf(4), w = leaf(4);
  const auto loss = [](const Tensor& a, const Tensor& b) { return sum(gelu(a * b)); };
  const Tensor g = grad({loss(x, w)}, {x})[0];
  const auto gradient = [&](const Tensor& y) { return grad({y}, {w})[0].to_vector(); };
  const Values constant = g.to_vector();
  const Tensor same = tensor(constant, {4});
  CHECK(gradient(loss(g.detach(), w)) == gradient(loss(same, w)));
  // For inputs that depend on a gradient, flat functions pass nothing on.
  CHECK(gradient(loss(x.detach() + 0.1f * sign(g), w)) ==
        gradient(loss(x.detach() + 0.1f * sign(same), w)));
  CHECK(gradient(loss(where(g > 0, x.detach(), w.detach()), w)) ==
        gradient(loss(where(same > 0, x.detach(), w.detach()), w)));
  CHECK(gradient(loss(round(g * 8.0f), w)) == gradient(loss(round(same * 8.0f), w)));
  Tensor moved;
  {
    const NoGrad guard;
    moved = x + g / sqrt(sum(square(g)));
  }
  CHECK(gradient(loss(moved, w)).size() == 4);
  Tensor written = zeros({4});
  written.copy_(g * 2.0f);
  CHECK(gradient(loss(written, w)).size() == 4);
  const Tensor start = (x.detach() + 0.1f * g).set_requires_grad();  // this is a leaf of its own
  CHECK(grad({loss(start, w)}, {start, w})[1].to_vector().size() == 4);
  // A gradient starts another backward.
  const Tensor h = x * w;
  const Tensor dh = grad({sum(square(h))}, {h}, {.retain = true})[0];
  h.backward(dh);
  const Tensor again = x * w;
  CHECK(grad({again}, {w}, {.seeds = {dh}})[0].to_vector() == w.grad().to_vector());
  // Norms and updates as programs compute them.
  const float norm = sqrt(sum(square(w.grad()))).item();
  CHECK(norm > 0);
  Tensor v = w;
  v.copy_(v.detach() - 0.1f * w.grad() / norm);
  x.impl().grad = w.impl().grad = {};
  loss(x, w).backward();
  CHECK(x.grad().defined());
  x.impl().grad = w.impl().grad = {};
}

TEST_CASE_FIXTURE(CpuDevice, "grad: nothing stays on records that it did not have to pass") {
  const Tensor x = leaf(4), w = leaf(4);
  const Tensor h = x * 2.0f;
  const Tensor of_w = sum(h * w), of_h = sum(h * 3.0f);
  const Tensor gradient = grad({of_w}, {w}, {.retain = true})[0];
  CHECK(gradient.to_vector() == h.to_vector());
  of_h.backward();  // passes h, through which grad() did not go
  CHECK(x.grad().to_vector() == std::vector<float>(4, 6));
}

TEST_SUITE_END();

}  // namespace
