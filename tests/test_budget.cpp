// A budget is what the device gives up: blocks, from the first tensor on, by every entrance, and a
// dry run predicts them.
#include <thread>

#include "rewind/core/predict/auto_recompute.h"
#include "rewind/nn/models/gpt.h"
#include "rewind/nn/models/resnet.h"
#include "rewind/nn/models/unet.h"
#include "rewind/nn/recurrent.h"
#include "rewind/optim/adam.h"
#include "rewind/optim/sgd.h"
#include "tests/env.h"
#include "tests/optim_fixture.h"
#include "tests/tape_fixture.h"
#include "tests/unet.h"

using namespace rw;
using test::contains;
using test::Env;
using test::some_values;
using Mode = AutoRecomputeOptions::Mode;

namespace {

using Losses = std::vector<float>;
using Training = std::function<Losses()>;
using Entrance = std::function<Losses(const Training&)>;

// Three steps as a user writes them.
Losses train(Optimizer& optimizer, const std::function<Tensor(int)>& loss_of) {
  Losses losses;
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = loss_of(step);
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item());
  }
  return losses;
}

Losses gpt() {
  manual_seed(1);
  GptLMHeadModel model(
      {.vocab_size = 64, .n_positions = 24, .n_embd = 16, .n_layer = 4, .n_head = 4});
  AdamW optimizer(model.parameters());
  return train(optimizer, [&](int step) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 8 * 24; ++i) ids.push_back((i * 7 + step * 5) % 64);
    const Tensor x = tensor(ids, {8, 24});
    return model.loss(x, x);
  });
}

Losses resnet() {
  manual_seed(2);
  ResNet model({.depths = {1, 1, 1}, .widths = {8, 16, 32}});
  SGD optimizer(model.parameters(), {.lr = 0.1f, .momentum = 0.9f});
  return train(optimizer, [&](int step) {
    return mean(square(model(tensor(some_values(4 * 16 * 16 * 3, step), {4, 16, 16, 3}))));
  });
}

Losses unet() {
  manual_seed(3);
  test::UNet model(4);
  Adam optimizer(model.weights());
  return train(optimizer, [&](int step) {
    return mean(square(model.forward(tensor(some_values(19 * 17 * 3, step), {1, 19, 17, 3}))));
  });
}

// Sequences of other lengths in every step.
Losses lstm() {
  manual_seed(4);
  LSTM model(16, 16, {.layers = 2});
  Adam optimizer(model.parameters());
  return train(optimizer, [&](int step) {
    const int64_t length = 12 + 4 * step;
    Tensor x = tensor(some_values(static_cast<int>(length) * 8 * 16, step), {length, 8, 16});
    return mean(square(tanh(model(std::move(x)))));
  });
}

struct Outcome {
  Losses losses;
  MemoryReport memory;
  std::string refusal;  // empty: none
};

// On a device of its own, in a thread of its own, which has read no variable yet.
Outcome run(const Training& training, const Entrance& entrance,
            uint64_t limit = 0) {
  Outcome outcome;
  std::exception_ptr error;
  std::thread([&] {
    try {
      const auto device = Device::create(open_backend("cpu"), limit);
      const DeviceScope scope(device);
      try {
        outcome.losses = entrance(training);
      } catch (const OutOfMemory& e) {
        outcome.refusal = e.what();
      }
      outcome.memory = device->memory_report();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return outcome;
}

Losses plain(const Training& training) {
  return training();
}

// The entrances that a program has in its own text.
Entrance by_auto(AutoRecomputeOptions options) {
  return [options](const Training& training) {
    const AutoRecompute recompute(options);
    return training();
  };
}
Entrance by_budget(uint64_t bytes) {
  return [bytes](const Training& training) {
    const MemoryBudget budget(bytes);
    const RecomputeScope scope({.evicts = true});
    return training();
  };
}

void check_kept(const Outcome& outcome, const Outcome& plain, uint64_t budget) {
  CHECK(outcome.memory.peak_reserved <= budget);
  CHECK(outcome.refusal == "");
  CHECK(outcome.losses == plain.losses);
}

// The same in a dry run on a device like it.
void check_predicted(const Outcome& real, const Training& training, const Entrance& entrance) {
  const auto device = Device::create(open_backend("cpu"));
  const DeviceScope scope(device);
  try {
  const Forecast dry = plan([&] { entrance(training); });
  CHECK(dry.memory.peak_reserved == real.memory.peak_reserved);
  CHECK(dry.memory.peak == real.memory.peak);
  } catch (const OutOfMemory&e) { CHECK(false); }
}

const std::pair<const char*, Training> programs[] = {
    {"gpt", gpt}, {"resnet", resnet}, {"unet", unet}, {"lstm", lstm}};

TEST_SUITE_BEGIN("host");

TEST_CASE("budget: blocks of a user's program stay within it, by every entrance") {
  for (const auto& [program, training] : programs) {
    const Outcome whole = run(training, plain);
    for (const int percent : {70, 50, 35}) {
      const uint64_t budget = whole.memory.peak * static_cast<uint64_t>(percent) / 100;
      const std::pair<const char*, Entrance> entrances[] = {
          {"eviction", by_budget(budget)},
          {"AutoRecompute", by_auto({.budget = budget})},
          {"AutoRecompute, evicting", by_auto({.mode = Mode::evict, .budget = budget})}};
      INFO(std::string(program) << ", " << percent << " % of " << whole.memory.peak);
      for (const auto& [name, entrance] : entrances) {
        INFO(std::string(name));
        const Outcome real = run(training, entrance);
        check_kept(real, whole, budget);
        MESSAGE(program << " " << name << " " << percent << " reserved " << real.memory.peak_reserved << " of " << budget << " peak "
                     << real.memory.peak << " moved " << real.memory.moved << " " << real.refusal.substr(0, 300));
        check_predicted(real, training, entrance);
      }
      const Env bytes("REWIND_MEMORY_BUDGET", std::to_string(budget).c_str());
      check_kept(run(training, plain), whole, budget);
    }
  }
}

TEST_CASE("budget: a limit of exactly the plain peak does, and moves values for that") {
  for (const auto& [name, training] : programs) {
    INFO(name);
    const Outcome whole = run(training, plain);
    const Outcome tight = run(training, plain, whole.memory.peak);
    check_kept(tight, whole, whole.memory.peak);
    CHECK(tight.memory.peak == whole.memory.peak);
    CHECK(run(training, plain, whole.memory.peak - 256).refusal != "");
  }
}

TEST_SUITE_END();

}  // namespace
