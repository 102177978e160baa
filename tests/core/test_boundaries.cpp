// Boundaries of checkpoint segments in host memory: the same bits in less device memory, as dry
// runs predict.
#include "core/autograd/boundaries.h"
#include "nn/layers.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int64_t boundary_width = 64, boundary_rows = 512;
constexpr uint64_t boundary = boundary_width * boundary_rows * sizeof(float);

// Blocks that each add to their input; all others read the first block's result.
struct BoundaryChain {
  std::vector<Tensor> weights;
  int nested = 0;
  bool shares = false;

  explicit BoundaryChain(int blocks) {
    for (int i = 0; i < blocks; ++i) {
      Tensor w = tensor(some_values(static_cast<int>(boundary_width * boundary_width), i),
                        {boundary_width, boundary_width}) *
                 0.1f;
      weights.push_back(w.detach().set_requires_grad());
    }
  }
  Tensor loss() const {
    Tensor x = tanh(full({boundary_rows, boundary_width}, 0.5f)), shared;
    for (size_t i = 0; i < weights.size(); ++i) {
      const CheckpointScope outer;
      Tensor h = x;
      for (int k = 0; k < 3; ++k) {
        const CheckpointScope inner(k < nested);
        h = tanh(dropout(matmul(std::move(h), weights[i]), 0.1f));
      }
      x = shares && shared ? h + x + shared : h + x;
      if (i == 0 && shares) shared = x;
    }
    return mean(square(std::move(x)));
  }
  std::vector<Values> gradients() {
    std::vector<Values> all;
    for (Tensor& w : weights) {
      all.push_back(w.grad().to_vector());
      w.set_grad({});
    }
    return all;
  }
};

}  // namespace

TEST_CASE(
    "boundaries on the host: the same bits, and as many on the device however many there are") {
  on_each_device([] {
    for (const int nested : {0, 2})
      for (const bool shares : {false, true}) {
        // Returns the chain's gradients, and the peaks of both memories.
        const auto run = [&](int blocks, bool on_host) {
          BoundaryChain chain(blocks);
          chain.nested = nested, chain.shares = shares;
          manual_seed(5);
          default_device()->reset_peak();
          const HostBoundaries scope(on_host);
          chain.loss().backward();
          return std::pair(chain.gradients(), default_device()->memory_report());
        };
        const auto [plain, few] = run(6, false);
        const auto [gradients, few_on_host] = run(6, true);
        CHECK(gradients == plain);
        CHECK(few.host_peak == 0);
        CHECK(few_on_host.host_peak >= 4 * boundary);
        CHECK(few_on_host.host_peak <= 5 * boundary);  // the shared boundary exists once
        CHECK(few_on_host.host_live == 0);
        // Six blocks more are six boundaries more, wherever these lie; weights and gradients grow,
        // too.
        const MemoryReport many = run(12, false).second, many_on_host = run(12, true).second;
        constexpr uint64_t weights = 6 * boundary_width * boundary_width * sizeof(float);
        CHECK(many.peak - few.peak >= 6 * boundary);
        CHECK(many_on_host.peak - few_on_host.peak <= 2 * weights);
        CHECK(many_on_host.host_peak - few_on_host.host_peak == 6 * boundary);
      }
  });
}

TEST_CASE("boundaries on the host: a dry run predicts both memories") {
  on_each_device([] {
    const auto program = [] {
      BoundaryChain chain(5);
      default_device()->reset_peak();
      for (int t = 0; t < 3; ++t) {
        const HostBoundaries scope;
        chain.loss().backward();
        for (Tensor& w : chain.weights) w.set_grad({});
        default_device()->end_step();
      }
      return default_device()->memory_report();
    };
    const MemoryReport real = program();
    const MemoryReport dry = plan([&] { (void)program(); }).memory;
    CHECK(dry.peak == real.peak);
    CHECK(dry.host_peak == real.host_peak);
    CHECK(dry.host_reserved == real.host_reserved);
  });
}

TEST_CASE(
    "boundaries on the host: backward twice, policies, views, and a scope that turns it off") {
  on_each_device([] {
    BoundaryChain chain(4);
    const auto run = [&](bool on_host, bool twice) {
      manual_seed(5);
      const HostBoundaries scope(on_host);
      const Tensor loss = chain.loss();
      loss.backward({}, twice);
      if (twice) loss.backward();
      return chain.gradients();
    };
    CHECK(run(true, true) == run(false, true));

    const Tensor w = chain.weights[0];
    const auto odd = [&](bool on_host, bool kept) {
      const HostBoundaries scope(on_host);
      Tensor x = tanh(full({boundary_rows, boundary_width}, 0.5f) * 1.0f) * sum(w);
      const Tensor half = slice(x, 0, 0, boundary_rows / 2), turned = transpose(x, 0, 1);
      {
        const CheckpointScope segment(true, kept ? save_matmuls() : SavePolicy());
        x = concat({tanh(matmul(half, w)), matmul(transpose(turned, 0, 1), w)}, 0);
      }
      mean(square(x)).backward();
      return chain.gradients();
    };
    for (Tensor& other : chain.weights)  // the others receive no gradient
      if (!other.grad()) other.set_grad(zeros(other.shape()));
    for (const bool kept : {false, true}) {
      const auto plain = odd(false, kept);
      for (Tensor& other : chain.weights) other.set_grad(zeros(other.shape()));
      CHECK(odd(true, kept) == plain);
      for (Tensor& other : chain.weights) other.set_grad(zeros(other.shape()));
    }
    CHECK(!boundaries_on_host());
    const HostBoundaries on;
    CHECK(boundaries_on_host());
    const HostBoundaries off(false);
    CHECK(!boundaries_on_host());
  });
}

TEST_CASE("boundaries on the host: an input that changes before its segment ends") {
  on_each_device([] {
    const HostBoundaries on_host;
    const Tensor w = parameter(some_values(8));
    Tensor x = w * 2.0f, y;
    {
      const CheckpointScope segment;
      y = sum(tanh(x * w));
      const NoGrad guard;
      x.copy_(w.detach());
    }
    CHECK(contains(message_of<AutogradError>([&] { y.backward(); }), "must not change"));
  });
}
