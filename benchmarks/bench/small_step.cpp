// The cost of one step of one sample: the MLP of the mnist program at batch 1, alone and
// accumulated. Beside it stand the parts of such a step, and the time that the host needs for it,
// which is that of the same steps on a dry device.
#include <fmt/format.h>

#include <algorithm>

#include "apps/common/mnist_mlp.h"
#include "benchmarks/bench/bench.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

class Training {
 public:
  explicit Training(uint32_t micro_batches)
      : optimizer_(Adam(model_.parameters()), micro_batches) {}

  void take(int steps) {
    for (int i = 0; i < steps; ++i) step();
  }

 private:
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

  std::vector<float> pixels_ = std::vector<float>(784, 0.5f);
  int32_t label_ = 3;
  Mlp model_;
  Accumulate optimizer_;
};

// Milliseconds of a step: the fastest of five rounds.
double measure_steps(Training& training, int steps) {
  training.take(steps);
  double best = 1e9;
  for (int round = 0; round < 5; ++round)
    best = std::min(best, 1e3 * seconds_of([&] { training.take(steps); }) / steps);
  return best;
}

void run_steps(const std::string& device, uint32_t micro_batches, int steps) {
  set_default_device(open_backend(device));
  double wall = 0;
  BackendStats before, after;
  {
    Training training(micro_batches);
    wall = measure_steps(training, steps);
    before = default_device()->backend().stats();
    training.take(steps);
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
    host = measure_steps(training, steps);
  }
  fmt::print("| {} | {:.2f} | {:.1f} | {:.1f} | {:.2f} | {:.3f} |\n",
             micro_batches == 1 ? "Adam, batch 1"
                                : fmt::format("Accumulate(Adam, {}), batch 1", micro_batches),
             wall, each(&BackendStats::dispatches), each(&BackendStats::barriers),
             each(&BackendStats::submits), host);
}

}  // namespace

Run small_step(CLI::App& app) {
  app.description("One step of one sample: time, dispatches, barriers, submits, time of the host.");
  struct Options {
    std::string device = "vulkan";
    int steps = 200;
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--device", o->device)->capture_default_str();
  shared_option(app, "--steps", o->steps, "in each round")->capture_default_str();
  return [o] {
    fmt::print(
        "| step | ms | dispatches | barriers | submits | ms of the host |\n"
        "|---|---:|---:|---:|---:|---:|\n");
    for (const uint32_t micro_batches : {1u, 100u}) run_steps(o->device, micro_batches, o->steps);
  };
}

}  // namespace rw::bench
