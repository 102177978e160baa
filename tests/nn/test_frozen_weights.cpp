// Frozen weights in host memory: the bits of weights that stay, and the memory of two of them.
#include "core/autograd/checkpoint.h"
#include "nn/adapters/frozen_weights.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int64_t frozen_width = 256;
constexpr uint64_t frozen_layer = frozen_width * frozen_width * sizeof(float);

struct FrozenRun {
  MemoryReport made, trained;
  uint64_t streamed = 0;
  std::vector<std::vector<std::byte>> values;
  float loss = 0;
};

// Four steps of eight layers, of which only the biases are trained.
FrozenRun train_biases(std::unique_ptr<Backend> backend, bool streams, bool replays) {
  const auto device = set_default_device(std::move(backend));
  manual_seed(5);
  FrozenRun run;
  Sequential net;
  std::unique_ptr<FrozenWeights> frozen;
  {
    const init::HostParameters there(streams);
    for (int i = 0; i < 8; ++i)
      net.emplace<Linear>(frozen_width, frozen_width).weight.set_requires_grad(false);
  }
  if (streams) frozen = std::make_unique<FrozenWeights>(net, 2 * frozen_layer);
  run.streamed = frozen ? frozen->bytes() : 0;
  std::vector<Tensor> biases;
  for (const Tensor& p : net.parameters())
    if (p.requires_grad()) biases.push_back(p);
  AdamW optimizer(biases);
  run.made = device->memory_report();
  device->reset_peak();
  for (int t = 0; t < 4; ++t) {
    if (frozen) frozen->begin_step();
    Tensor loss;
    {
      const CheckpointScope segment(replays);
      loss = mean(square(net(full({8, frozen_width}, 0.5f + 0.1f * static_cast<float>(t)))));
    }
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (!device->backend().is_dry()) run.loss = loss.item();
    loss = {};
    device->end_step();
  }
  run.trained = device->memory_report();
  if (!device->backend().is_dry()) run.values = raw_bytes(net.parameters());
  return run;
}

}  // namespace

TEST_CASE("frozen weights: in host memory they give the bits of weights that stay") {
  on_each_device([] {
    const std::string name = default_device()->info().backend;
    for (const bool replays : {false, true}) {
      CAPTURE(replays);
      const FrozenRun plain = train_biases(open_backend(name), false, replays),
                      other = train_biases(open_backend(name), true, replays);
      CHECK(plain.values == other.values);
      CHECK(plain.loss == other.loss);
      CHECK(other.streamed == 8 * frozen_layer);
      CHECK(plain.made.peak > 8 * frozen_layer);
      CHECK(other.made.peak <= frozen_layer);  // one at a time, for its first values
      CHECK(other.made.host_live >= 8 * frozen_layer);
      CHECK(other.made.host_peak < 9 * frozen_layer);  // nor twice on the host
      CHECK(other.trained.peak + 6 * frozen_layer <= plain.trained.peak);
      const FrozenRun dry = train_biases(endless_dry(*open_backend(name)), true, replays);
      CHECK(dry.trained.peak == other.trained.peak);
      CHECK(dry.trained.host_peak == other.trained.host_peak);
    }
  });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "frozen weights: only what nothing trains, once, and not what is small") {
  Sequential net;
  net.emplace<Linear>(256, 256).weight.set_requires_grad(false);
  net.emplace<Linear>(256, 256);
  net.emplace<Linear>(16, 16).weight.set_requires_grad(false);
  const FrozenWeights frozen(net);
  CHECK(frozen.bytes() == frozen_layer);
  const FrozenWeights again(net);  // others keep them already
  CHECK(again.bytes() == 0);
}
