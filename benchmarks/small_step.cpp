// What one step of one sample costs: the MLP of the mnist program at batch 1, alone and
// accumulated. Beside it what such a step is made of, and the time that the host needs for it,
// which is that of the same steps on a dry device.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>

#include "apps/common/mnist_mlp.h"
#include "backends/open.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"

using namespace rw;

namespace {

class Training {
 public:
  explicit Training(uint32_t micro_batches)
      : optimizer_(Adam(model_.parameters()), micro_batches) {}

  void step() {
    {
      const PurposeScope purpose(Purpose::data);
      const Tensor x = tensor(std::span<const float>(pixels_), {1, 784});
      const Tensor y = tensor(std::span<const int32_t>(&label_, 1), {1});
      optimizer_.backward(cross_entropy(model_(x), y));
    }
    optimizer_.step();
    optimizer_.zero_grad();
    default_device()->end_step();
  }

 private:
  std::vector<float> pixels_ = std::vector<float>(784, 0.5f);
  int32_t label_ = 3;
  Mlp model_;
  Accumulate optimizer_;
};

// Milliseconds of a step: the fastest of five rounds.
double measure(Training& training, int steps) {
  for (int i = 0; i < steps; ++i) training.step();
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    default_device()->synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) training.step();
    default_device()->synchronize();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / steps);
  }
  return best;
}

void run(const std::string& device, uint32_t micro_batches, int steps) {
  set_default_device(open_backend(device));
  double wall = 0;
  BackendStats before, after;
  {
    Training training(micro_batches);
    wall = measure(training, steps);
    before = default_device()->backend().stats();
    for (int i = 0; i < steps; ++i) training.step();
    default_device()->synchronize();
    after = default_device()->backend().stats();
  }
  const auto each = [&](uint64_t BackendStats::*count) {
    return static_cast<double>(after.*count - before.*count) / steps;
  };
  auto dry = default_device()->backend().dry();
  set_default_device(std::move(dry));
  double host = 0;
  {
    Training training(micro_batches);
    host = measure(training, steps);
  }
  fmt::print("| {} | {:.2f} | {:.1f} | {:.1f} | {:.2f} | {:.3f} |\n",
             micro_batches == 1 ? "Adam, batch 1"
                                : fmt::format("Accumulate(Adam, {}), batch 1", micro_batches),
             wall, each(&BackendStats::dispatches), each(&BackendStats::barriers),
             each(&BackendStats::submits), host);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One step of one sample: time, dispatches, barriers, submits, time of the host.");
  std::string device = "vulkan";
  int steps = 200;
  app.add_option("--device", device, "vulkan or cpu")->capture_default_str();
  app.add_option("--steps", steps, "steps per round")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  fmt::print(
      "| step | ms | dispatches | barriers | submits | ms of the host "
      "|\n|---|---:|---:|---:|---:|---:|\n");
  for (const uint32_t micro_batches : {1u, 100u}) run(device, micro_batches, steps);
}
