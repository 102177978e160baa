// Losses that depend on gradients, and their gradients: those of PyTorch, the same bits with
// checkpoint segments, and the memory that a dry run predicts.
#include "core/autograd/gradients.h"
#include "ops/losses/losses.h"
#include "ops/numeric.h"
#include "tests/fixtures/forecast_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/op_table/f64_backend.h"

namespace rw::test {

namespace {

namespace gradient_goldens {
#include "tests/goldens/gradients.inc"
}

// Where checkpoint segments are: around what the inner gradients are of, around all, or both.
struct Segmented {
  bool inner = false, outer = false;
  SavePolicy policy = {};
};

// Returns values() of make_gradient_goldens.py.
Tensor golden_values(const Shape& shape, int seed, double scale = 1) {
  std::vector<float> v;
  for (int64_t i = 0; i < shape.numel(); ++i)
    v.push_back(
        static_cast<float>(scale * (static_cast<double>((i * 37 + seed * 53) % 101) / 50 - 1)));
  return tensor(v, shape).set_requires_grad();
}

struct OfGradients {
  Tensor loss;
  std::vector<Tensor> weights;
};

Tensor derivative(const Tensor& y, const Tensor& x) {
  return grad({sum(y)}, {x}, {.create_graph = true})[0];
}

OfGradients physics(const Segmented& s) {
  const std::vector<Tensor> w = {golden_values({6, 1}, 1), golden_values({6}, 2),
                                 golden_values({5, 6}, 3), golden_values({5}, 4),
                                 golden_values({1, 5}, 5), golden_values({1}, 6)};
  const Tensor x = golden_values({7, 1}, 7);
  const CheckpointScope outer(s.outer, s.policy);
  Tensor u;
  {
    const CheckpointScope inner(s.inner, s.policy);
    const Tensor h = tanh(linear(x, w[0], w[1]));
    u = linear(gelu(linear(h, w[2], w[3])), w[4], w[5]);
  }
  const Tensor ux = derivative(u, x), uxx = derivative(ux, x);
  return {mean(square(uxx + sin(u) - x)) + mean(square(ux)), w};
}

OfGradients penalty(const Segmented& s) {
  const std::vector<Tensor> w = {golden_values({4, 3, 3, 2}, 1), golden_values({4}, 2),
                                 golden_values({4}, 3),          golden_values({4}, 4),
                                 golden_values({3, 2, 2, 4}, 5), golden_values({1, 12}, 6),
                                 golden_values({1}, 7)};
  const Tensor real = golden_values({3, 5, 5, 2}, 8), fake = golden_values({3, 5, 5, 2}, 9),
               share = golden_values({3, 1, 1, 1}, 10, 0.5) + 0.5f;
  const Tensor x = (share * real + (1.0f - share) * fake).detach().set_requires_grad();
  const CheckpointScope outer(s.outer, s.policy);
  Tensor score;
  {
    const CheckpointScope inner(s.inner, s.policy);
    Tensor h = group_norm(conv2d(x, w[0], w[1], {.padding = 1}), 2, w[2], w[3]);
    h = softplus(conv2d(leaky_relu(h, 0.2f), w[4], {.stride = 3}));
    score = linear(reshape(h, {3, 12}), w[5], w[6]);
  }
  const Tensor slope = norm(reshape(derivative(score, x), {3, -1}), 2, {1});
  return {mean(score) + 10.0f * mean(square(slope - 1.0f)), w};
}

OfGradients learning(const Segmented& s) {
  const std::vector<Tensor> w = {golden_values({6, 2}, 1), golden_values({6}, 2),
                                 golden_values({3, 6}, 3), golden_values({3}, 4)};
  const std::vector<int32_t> known = {0, 2, 1, 1, 0}, asked = {2, 0, 1, 2};
  const Tensor xs[] = {golden_values({5, 2}, 5).detach(), golden_values({4, 2}, 6).detach()};
  const Tensor ys[] = {tensor(known, {5}), tensor(asked, {4})};
  const auto loss_of = [&](const std::vector<Tensor>& v, int batch) {
    const CheckpointScope inner(s.inner, s.policy);
    const Tensor h = layer_norm(tanh(linear(xs[batch], v[0], v[1])));
    return cross_entropy(linear(h, v[2], v[3]), ys[batch]);
  };
  const CheckpointScope outer(s.outer, s.policy);
  std::vector<Tensor> fast = w;
  for (int step = 0; step < 2; ++step) {
    const std::vector<Tensor> g = grad({loss_of(fast, 0)}, fast, {.create_graph = true});
    for (size_t i = 0; i < fast.size(); ++i) fast[i] = fast[i] - 0.5f * g[i];
  }
  return {loss_of(fast, 1), w};
}

struct GoldenOfGradients {
  const char* name;
  OfGradients (*make)(const Segmented&);
  const std::vector<double>&loss, &gradient;
};

const GoldenOfGradients goldens_of_gradients[] = {
    {"physics", physics, gradient_goldens::physics_loss, gradient_goldens::physics_grad},
    {"penalty", penalty, gradient_goldens::penalty_loss, gradient_goldens::penalty_grad},
    {"learning", learning, gradient_goldens::learning_loss, gradient_goldens::learning_grad}};

// Returns the loss, and then the gradients of the weights, one after another.
template <class F>
auto loss_and_gradients(const GoldenOfGradients& golden, const Segmented& s, const F& values) {
  const auto [loss, weights] = golden.make(s);
  auto all = values(loss.detach());
  loss.backward();
  for (const Tensor& w : weights) {
    const auto g = values(w.grad());
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

std::vector<float> floats_of(const Tensor& t) {
  return t.to_vector();
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE(
    "gradients of gradients: a physical loss, a penalty and learning to learn, as in PyTorch") {
  const auto compare = [](const GoldenOfGradients& golden, const auto& actual, double tolerance) {
    std::vector<double> expected = golden.loss;
    expected.insert(expected.end(), golden.gradient.begin(), golden.gradient.end());
    REQUIRE(actual.size() == expected.size());
    double largest = 0;
    for (const double v : expected) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < expected.size(); ++i)
      CHECK_MESSAGE(
          std::abs(actual[i] - expected[i]) <= tolerance * largest,
          golden.name << ": value " << i << " is " << actual[i] << ", PyTorch's " << expected[i]);
  };
  for (const GoldenOfGradients& golden : goldens_of_gradients) {
    {
      auto made = std::make_unique<F64Backend>();
      F64Backend& backend = *made;
      const auto device = Device::create(std::move(made));
      set_default_device(device);
      const auto doubles = [&](const Tensor& t) { return backend.values(contiguous(t)); };
      compare(golden, loss_and_gradients(golden, {}, doubles), 1e-7);
    }
    const CpuDevice device;
    compare(golden, loss_and_gradients(golden, {}, floats_of), 1e-5);
  }
}

TEST_CASE("gradients of gradients: the same bits inside segments, across them and in both") {
  for (const GoldenOfGradients& golden : goldens_of_gradients) {
    const CpuDevice device;
    const std::vector<float> plain = loss_and_gradients(golden, {}, floats_of);
    for (const SavePolicy& policy : {save_nothing(), save_matmuls()})
      for (int form = 1; form < 4; ++form) {
        CpuDevice::tape().verify_replay(true);
        const Segmented s = {(form & 1) != 0, (form & 2) != 0, policy};
        const bool is_equal = loss_and_gradients(golden, s, floats_of) == plain;
        CHECK_MESSAGE(is_equal, golden.name << " " << form);
        CpuDevice::tape().verify_replay(false);
      }
  }
}

TEST_CASE("gradients of gradients: a dry run predicts their memory") {
  for (const GoldenOfGradients& golden : goldens_of_gradients)
    for (int form = 0; form < 4; ++form) {
      const Segmented s = {(form & 1) != 0, (form & 2) != 0};
      const auto program = [&] {
        for (int i = 0; i < 3; ++i) {
          golden.make(s).loss.backward();
          default_device()->end_step();
        }
      };
      CAPTURE(golden.name);
      CAPTURE(form);
      const CpuDevice device;
      check_forecast(program);
    }
}

TEST_SUITE_END();

}  // namespace rw::test
