// Offloaded parameters that the host's processor updates: by the loops of the device `cpu`.
#include <filesystem>
#include <limits>
#include <memory>

#include "io/snapshot/snapshot.h"
#include "nn/layers.h"
#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/adama.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adafactor.h"
#include "optim/adagrad.h"
#include "optim/adam8bit.h"
#include "optim/lamb.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace rw::test;

namespace {

using Groups = std::vector<ParameterGroup>;
using MakeUpdated = std::function<std::unique_ptr<Optimizer>(Groups)>;

template <class O, class Options>
MakeUpdated updated_maker(const Options& options) {
  return [=](Groups groups) { return std::make_unique<O>(std::move(groups), options); };
}

std::vector<std::pair<std::string, MakeUpdated>> host_optimizers() {
  return {{"sgd", updated_maker<SGD>(SGDOptions{.lr = 0.1f, .momentum = 0.9f})},
          {"sgd without a state", updated_maker<SGD>(SGDOptions{.lr = 0.1f})},
          {"adam", updated_maker<Adam>(AdamOptions{.weight_decay = 0.1f})},
          {"adamw, amsgrad", updated_maker<AdamW>(AdamWOptions{.amsgrad = true})},
          {"lion", updated_maker<Lion>(LionOptions{})},
          {"rmsprop", updated_maker<RMSprop>(RMSpropOptions{})},
          {"adagrad", updated_maker<Adagrad>(AdagradOptions{})},
          {"adam8bit", updated_maker<Adam8bit>(AdamOptions{})},
          {"adafactor", updated_maker<Adafactor>(AdafactorOptions{})},
          {"lamb", updated_maker<Lamb>(LambOptions{})},
          {"muon", [](Groups groups) {
             ParameterGroup matrices = groups[0], others = groups[0];
             std::erase_if(matrices.parameters, [](const Tensor& p) { return p.rank() < 2; });
             std::erase_if(others.parameters, [](const Tensor& p) { return p.rank() >= 2; });
             return std::make_unique<Muon>(std::vector{matrices}, MuonOptions{},
                                           std::vector{others});
           }}};
}

// Where states and parameters lie; the host updates what lies there.
enum class Home { device, states_on_host, all_on_host };

Groups updated_on_host(std::vector<Tensor> parameters, Home home) {
  Groups groups = one_group(std::move(parameters));
  if (home == Home::device) return groups;
  Offload how{.part_bytes = MiB, .updates_on_host = true};
  if (home == Home::states_on_host) return offload_states(std::move(groups), how);
  how.parameter_bytes = MiB;
  return offload_parameters(std::move(groups), how);
}

// Returns small parameters, one that streams, and one of more than a part.
std::vector<Tensor> updated_parameters(DType dtype) {
  std::vector<Tensor> all;
  for (const Shape& shape : {Shape{6}, Shape{300000}, Shape{256, 160}, Shape{5, 3}}) {
    const auto seed = static_cast<int>(all.size());
    all.push_back(tensor(some_values(static_cast<int>(shape.numel()), seed), shape, dtype));
    all.back().set_requires_grad().impl().name = "p" + std::to_string(seed);
  }
  return all;
}

// Returns a loss with the same gradients on every device, whose squares have exact sums: eighths.
// The third parameter has none at first.
Tensor exact_loss(const std::vector<Tensor>& parameters, int t) {
  Tensor total;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (t == 0 && i == 2) continue;
    const Tensor& p = parameters[i];
    Values gradient(static_cast<size_t>(p.numel()));
    for (size_t k = 0; k < gradient.size(); ++k)
      gradient[k] = static_cast<float>((k * 5 + i + static_cast<size_t>(t)) % 7) / 8 - 0.25f;
    const Tensor part = sum(cast(p, DType::f32) * tensor(gradient, p.shape()));
    total = total ? total + part : part;
  }
  return total;
}

// Takes updates, one of which overflows, and returns the bytes of parameters and states.
std::vector<std::vector<std::byte>> update_exactly(Optimizer& optimizer,
                                                   const std::vector<Tensor>& parameters, int from,
                                                   int to) {
  for (int t = from; t < to; ++t) {
    const Tensor loss = exact_loss(parameters, t);
    optimizer.backward(t == 4 ? loss * std::numeric_limits<float>::infinity() : loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  std::vector<std::vector<std::byte>> bytes = raw_bytes(parameters);
  for (const auto& [name, state] : optimizer.state())
    if (name != "control") bytes.push_back(read_bytes(state));
  return bytes;
}

// A clipped, scaled run with windows of micro-batches, on a fresh device.
std::vector<std::vector<std::byte>> updated_bytes(const std::string& device, Home home, DType dtype,
                                                  const MakeUpdated& make, uint32_t windows) {
  set_default_device(open_backend(device));
  const std::vector<Tensor> parameters = updated_parameters(dtype);
  Accumulate optimizer(std::move(*make(updated_on_host(parameters, home))), windows);
  optimizer.set_max_norm(1);
  optimizer.set_scaler(LossScaler::dynamic(0x1p10f, 2, 0.5f, 3));
  auto bytes = update_exactly(optimizer, parameters, 0, 8);
  CHECK(optimizer.skipped() == 1);
  return bytes;
}

std::vector<std::string> updating_devices() {
  std::vector<std::string> devices = {"cpu"};
  if (has_vulkan()) devices.push_back("vulkan");
  return devices;
}

}  // namespace

TEST_CASE("host updates: the bits of the device cpu, of every optimizer, clipped and scaled") {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const auto& [name, make] : host_optimizers())
      for (const uint32_t windows : {1, 2}) {
        CAPTURE(name);
        CAPTURE(rw::name(dtype));
        CAPTURE(windows);
        const auto expected = updated_bytes("cpu", Home::device, dtype, make, windows);
        for (const std::string& device : updating_devices())
          for (const Home home : {Home::states_on_host, Home::all_on_host}) {
            CAPTURE(device);
            CAPTURE(static_cast<int>(home));
            CHECK(updated_bytes(device, home, dtype, make, windows) == expected);
          }
      }
}

TEST_CASE("host updates: inside backward, the bits of the device cpu") {
  for (const FusedPasses passes : {FusedPasses::one, FusedPasses::two})
    for (const DType dtype : {DType::f32, DType::f16}) {
      const auto run = [&](const std::string& device, Home home) {
        set_default_device(open_backend(device));
        const std::vector<Tensor> parameters = updated_parameters(dtype);
        FusedBackward optimizer(AdamW(updated_on_host(parameters, home)), passes);
        optimizer.set_max_norm(1);
        return update_exactly(optimizer, parameters, 0, 4);
      };
      const auto expected = run("cpu", Home::device);
      for (const std::string& device : updating_devices())
        for (const Home home : {Home::states_on_host, Home::all_on_host}) {
          CAPTURE(device);
          CAPTURE(static_cast<int>(home));
          CAPTURE(rw::name(dtype));
          CHECK(run(device, home) == expected);
        }
    }
}

TEST_CASE("host updates: a snapshot goes on to the bit, in either place") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "s.safetensors";
  struct Run {
    Linear model{256, 128};
    Adam optimizer;
    explicit Run(Home home) : optimizer(updated_on_host(model.parameters(), home)) {}
    std::vector<std::vector<std::byte>> train(int from, int to) {
      return update_exactly(optimizer, model.parameters(), from, to);
    }
  };
  for (const std::string& device : updating_devices())
    for (const Home home : {Home::states_on_host, Home::all_on_host}) {
      CAPTURE(device);
      set_default_device(open_backend(device));
      manual_seed(1);
      Run first(home);
      first.train(1, 4);
      save_snapshot(file, {.model = first.model, .optimizer = first.optimizer}, {});
      const auto expected = first.train(5, 7);
      manual_seed(2);
      Run second(home);
      load_snapshot(file, {.model = second.model, .optimizer = second.optimizer});
      CHECK(second.train(5, 7) == expected);
      // A device whose own arithmetic is the same goes on from it, too.
      set_default_device(open_backend("cpu"));
      Run resident(Home::device);
      load_snapshot(file, {.model = resident.model, .optimizer = resident.optimizer});
      CHECK(resident.train(5, 7) == expected);
    }
}

TEST_CASE("host updates: dry runs predict the device's and the host's memory to the byte") {
  for (const std::string& name : updating_devices())
    for (const Home home : {Home::states_on_host, Home::all_on_host})
      for (const bool is_fused : {false, true})
        for (const DType dtype : {DType::f32, DType::f16}) {
          CAPTURE(name);
          CAPTURE(static_cast<int>(home));
          CAPTURE(is_fused);
          const auto program = [&] {
            const std::vector<Tensor> parameters = updated_parameters(dtype);
            AdamW adam(updated_on_host(parameters, home));
            std::unique_ptr<Optimizer> optimizer;
            if (is_fused)
              optimizer = std::make_unique<FusedBackward>(std::move(adam));
            else
              optimizer = std::make_unique<Accumulate>(std::move(adam), 2);
            for (int t = 1; t < 6; ++t) {
              optimizer->zero_grad();
              optimizer->backward(exact_loss(parameters, t));
              optimizer->step();
            }
          };
          const auto device = set_default_device(open_backend(name));
          const Forecast forecast = plan(program);
          program();
          const MemoryReport real = device->memory_report();
          CHECK(forecast.memory.peak == real.peak);
          CHECK(forecast.memory.peak_by_purpose == real.peak_by_purpose);
          CHECK(forecast.memory.peak_reserved == real.peak_reserved);
          CHECK(forecast.memory.host_peak == real.host_peak);
          CHECK(forecast.memory.host_reserved == real.host_reserved);
          CHECK(forecast.work[static_cast<int>(Phase::update)].on_host ==
                device->work()[static_cast<int>(Phase::update)].on_host);
        }
}

TEST_CASE("host updates: only gradients and values cross the bus, and the device needs no room") {
  for (const std::string& name : updating_devices()) {
    const auto device = set_default_device(open_backend(name));
    constexpr int64_t n = 1 << 20;
    const std::vector<Tensor> parameters = {full({n}, 0.5f).set_requires_grad(),
                                            full({n}, 0.5f).set_requires_grad()};
    AdamW optimizer(updated_on_host(parameters, Home::states_on_host));
    optimizer.backward(exact_loss(parameters, 1));
    device->reset_peak();
    const uint64_t live = device->live();
    optimizer.step();
    const Work work = device->work()[static_cast<int>(Phase::update)];
    CHECK(device->memory_report().peak == live);
    CHECK(work.over_bus >= 2 * 12 * n);
    CHECK(work.over_bus < 2 * 12 * n + n / 16);
    // Parameters and moments are read and written, gradients read.
    CHECK(work.on_host >= 2 * 28 * n);
    CHECK(work.on_host < 2 * 28 * n + n / 16);
    CHECK(parameters[0].grad().impl().storage->place() == MemoryPlace::device);
  }
}

TEST_CASE("host updates: what cannot be done is refused" * doctest::test_suite("host")) {
  const CpuDevice cpu;
  const std::string message =
      message_of<ValueError>([] { AdamA(updated_on_host({leaf(10)}, Home::states_on_host), 2); });
  CHECK(contains(message, "without their updates"));
  Groups groups = updated_on_host({leaf(10)}, Home::states_on_host);
  groups.push_back(offload_states({leaf(10)})[0]);
  CHECK(contains(message_of<ValueError>([&] { AdamW(std::move(groups)); }), "in one place"));
  const HostWorkScope scope;
  Tensor on_device;
  {
    const PlaceScope place(MemoryPlace::device);
    on_device = empty({8}, DType::f32);
  }
  CHECK_THROWS_AS(fill_(on_device, 1), DeviceError);
}
