// Parameters that lie in host memory, and come to the device when kernels use them.
#include <memory>

#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// Eight layers of 256 KiB, of which the device holds two at a time, or all.
std::unique_ptr<Sequential> deep_net() {
  auto net = std::make_unique<Sequential>();
  for (int i = 0; i < 8; ++i) net->emplace<Linear>(256, 256);
  return net;
}

struct DeepRun {
  MemoryReport made, trained;
  std::vector<std::vector<std::byte>> values;
};

// Updates inside backward, in some passes, or after windows of two micro-batches.
enum class Updates { one_pass, two_passes, windows };

DeepRun train_deep_net(std::unique_ptr<Backend> backend, bool is_offloaded, bool replays,
                       Updates updates) {
  const auto device = set_default_device(std::move(backend));
  manual_seed(5);
  DeepRun run;
  std::unique_ptr<Sequential> net;
  {
    const init::HostParameters there(is_offloaded);
    net = deep_net();
  }
  // No states are copied to the device for an update.
  const Offload how{.part_bytes = 1024, .parameter_bytes = 512 << 10};
  std::vector<ParameterGroup> groups = one_group(net->parameters());
  if (is_offloaded) groups = offload_parameters(std::move(groups), how);
  const auto passes = updates == Updates::one_pass ? FusedPasses::one : FusedPasses::two;
  std::unique_ptr<Optimizer> optimizer;
  if (updates == Updates::windows)
    optimizer = std::make_unique<Accumulate>(AdamW(std::move(groups)), 2);
  else
    optimizer = std::make_unique<FusedBackward>(AdamW(std::move(groups)), passes);
  optimizer->set_max_norm(0.1f);
  run.made = device->memory_report();
  device->reset_peak();
  for (int t = 0; t < 4; ++t) {
    Tensor loss;
    {
      const CheckpointScope segment(replays);
      loss = mean(square((*net)(full({8, 256}, 0.5f + 0.1f * static_cast<float>(t)))));
    }
    optimizer->backward(loss);
    optimizer->step();
    optimizer->zero_grad();
    loss = {};
    device->end_step();
  }
  run.trained = device->memory_report();
  if (!device->backend().is_dry()) run.values = raw_bytes(net->parameters());
  return run;
}

}  // namespace

TEST_CASE("offload_parameters: a model that never lies on the device as a whole") {
  on_each_device([] {
    const std::string name = default_device()->info().backend;
    for (const bool replays : {false, true})
      for (const Updates updates : {Updates::one_pass, Updates::two_passes, Updates::windows}) {
        CAPTURE(replays);
        const DeepRun plain = train_deep_net(open_backend(name), false, replays, updates),
                      other = train_deep_net(open_backend(name), true, replays, updates);
        CHECK(plain.values == other.values);
        constexpr uint64_t layer = 256 << 10, all = 8 * layer;
        CHECK(plain.made.peak > 3 * all);
        CHECK(other.made.peak < 2 * layer + 64 * 1024);
        CHECK(other.made.host_live >= 3 * all);
        // Two layers and a gradient or two, in place of all layers, their moments, and one gradient
        // or all.
        const uint64_t gradients = updates == Updates::windows ? 6 * layer : 0;
        CHECK(other.trained.peak + 6 * layer + 2 * all + gradients <
              plain.trained.peak + layer / 2);
        const DeepRun dry =
            train_deep_net(endless_dry(*open_backend(name)), true, replays, updates);
        CHECK(dry.trained.peak == other.trained.peak);
        CHECK(dry.trained.host_peak == other.trained.host_peak);
      }
  });
}

TEST_CASE_FIXTURE(CpuDevice, "offload_parameters: they are ordinary parameters where they lie") {
  manual_seed(2);
  const auto net = deep_net();
  std::vector<Tensor> parameters = net->parameters();
  const auto before = raw_bytes(parameters);
  const Tensor x = full({2, 256}, 0.1f);
  const NoGrad guard;
  const std::vector<float> y = (*net)(x).to_vector();
  {
    const AdamW optimizer(offload_parameters(parameters, {.parameter_bytes = 512 << 10}));
    CHECK(parameters[0].impl().storage->is_on_host());
    CHECK(!parameters[1].impl().storage->is_on_host());  // a bias
    CHECK(raw_bytes(parameters) == before);
    CHECK((*net)(x).to_vector() == y);
    parameters[0].copy_(zeros({256, 256}));
    (*net)(x);
    CHECK(sum(abs(parameters[0])).item() == 0);
    parameters[0].copy_from(std::vector<float>(256 * 256, 1.0f));
    (*net)(x);
    CHECK(sum(parameters[0]).item() == 256 * 256);
  }
  // Without the optimizer, kernels bring them for good.
  CHECK(sum(parameters[0]).item() == 256 * 256);
  (*net)(x);
  for (const Tensor& p : parameters) CHECK(!p.impl().storage->is_swapped_out());
  CHECK(read_bytes(parameters[2]) == before[2]);
}
