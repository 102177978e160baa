// If a plan reaches a budget, a program can train under it from its first step on.
#include "optim/sgd.h"
#include "planner/auto_recompute.h"
#include "planner/search/search.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/small_trainings.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

// Each op overwrites its input if nobody else reads it, on which eviction does not count.
Losses overwriting_chain() {
  manual_seed(5);
  const Tensor w = rand({4096}, -0.4f, 0.4f).set_requires_grad();
  SGD optimizer({w}, {.lr = 0.1f});
  return train_steps(optimizer, [&](int) {
    Tensor x = tanh(w * 0.5f);
    for (int i = 0; i < 20; ++i) x = tanh(std::move(x) * 0.9f);
    return mean(square(x));
  });
}

// Two losses of one pass, the second after the first's backward, and values that the program holds.
Losses two_losses() {
  manual_seed(6);
  const Tensor w = rand({64, 64}, -0.4f, 0.4f).set_requires_grad();
  SGD optimizer({w}, {.lr = 0.1f});
  Losses losses;
  for (int step = 0; step < 3; ++step) {
    std::vector<Tensor> held;
    Tensor x = tensor(some_values(64 * 64, step), {64, 64});
    for (int i = 0; i < 32; ++i) {
      x = tanh(matmul(std::move(x), w));
      if (i % 16 == 3) held.push_back(x);
    }
    const Tensor first = mean(square(x)), second = mean(square(held[0] + held[1]));
    first.backward({}, true);
    second.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.insert(losses.end(), {first.item(), second.item()});
  }
  return losses;
}

Losses plainly(const Training& training, const std::string& device = "reference") {
  const DeviceScope scope(Device::create(open_backend(device)));
  return training();
}

struct FeasibleOutcome {
  Losses losses;
  std::vector<std::string> kinds;
  uint64_t peak = 0, replayed = 0;
  std::string refusal;
};

FeasibleOutcome within(uint64_t budget, const Training& training,
                       const std::string& device = "reference") {
  const DeviceScope scope(Device::create(open_backend(device)));
  const uint64_t replayed = Tape::current()->replayed_records();
  FeasibleOutcome outcome;
  {
    const AutoRecompute recompute({.budget = budget, .candidates = 4});
    try {
      outcome.losses = training();
    } catch (const OutOfMemory& e) {
      outcome.refusal = e.what();
    }
    outcome.kinds = recompute.kinds();
  }
  outcome.peak = default_device()->memory_report().peak_reserved;
  outcome.replayed = Tape::current()->replayed_records() - replayed;
  CHECK(default_device()->live() == 0);
  return outcome;
}

// Checks on a device without workspaces, and on one with them.
void check_feasible(const std::string& device) {
  const std::pair<const char*, Training> programs[] = {
      {"gpt", train_gpt},
      {"resnet", train_resnet},
      {"unet", [] { return train_unet(19, 21); }},
      {"recurrent", [] { return train_recurrent(24); }},
      {"chain", overwriting_chain},
  };
  for (const auto& [program, training] : programs) {
    const Losses expected = plainly(training, device);
    Search search([&] { return open_backend("dry:" + device); }, [&] { training(); },
                  {.candidates = 4});
    const auto& choices = search.candidates();
    for (const size_t k : {choices.size() - 1, choices.size() / 2, size_t{0}}) {
      const uint64_t budget = choices[k].peak();
      INFO(std::string(program) << " in " << budget << " bytes of " << device);
      const FeasibleOutcome bounded = within(budget, training, device);
      CHECK(bounded.refusal == "");
      CHECK(bounded.losses == expected);
      CHECK(bounded.peak <= budget);
      REQUIRE(bounded.kinds.size() == 1);
      CHECK(contains(bounded.kinds[0], "3 passes"));
      CHECK(contains(bounded.kinds[0], "planned"));
    }
    const uint64_t too_little = choices.back().peak() * 3 / 4;
    INFO(std::string(program) << " in " << too_little << " bytes of " << device);
    const FeasibleOutcome refused = within(too_little, training, device);
    CHECK(contains(refused.refusal, "the memory budget is"));
    if (!refused.kinds.empty())  // otherwise it does not get through its forward pass
      CHECK(contains(refused.refusal, "no plan that was found needs less than"));
  }
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("feasible budgets: a program trains in the peak of every plan, and is told the least") {
  check_feasible("reference");
}

TEST_CASE("feasible budgets: the same with workspaces, on the cpu") {
  check_feasible("cpu");
}

TEST_CASE("feasible budgets: values that the program holds, and two backwards of one pass") {
  const Losses expected = plainly(two_losses);
  const DeviceScope scope(Device::create(open_backend("reference")));
  two_losses();
  const uint64_t peak = default_device()->memory_report().peak;
  for (const uint64_t percent : {90, 80, 70, 60}) {
    INFO("in " << percent << " % of " << peak);
    const FeasibleOutcome bounded = within(peak * percent / 100, two_losses);
    CHECK(bounded.refusal == "");
    CHECK(bounded.losses == expected);
    CHECK(bounded.replayed > 0);
  }
}

// Data that each record saves go when backward has passed the record, and gradients take their
// place.
TEST_CASE("feasible budgets: the plain peak does where values from outside give way to gradients") {
  constexpr int64_t n = 4096;
  const auto training = [] {
    manual_seed(7);
    std::vector<Tensor> weights;
    for (int i = 0; i < 8; ++i) weights.push_back(rand({n}).set_requires_grad());
    const auto term = [&](int i) {
      return sum(weights[static_cast<size_t>(i)] * tensor(some_values(n, i), {n}));
    };
    Tensor total = term(0);
    for (int i = 1; i < 8; ++i) total = std::move(total) + term(i);
    total.backward();
    return Losses{total.item(), sum(weights[3].grad()).item()};
  };
  const DeviceScope scope(Device::create(open_backend("reference")));
  const Losses expected = training();
  const uint64_t peak = default_device()->memory_report().peak;
  const FeasibleOutcome bounded = within(peak, training);
  CHECK(bounded.refusal == "");
  CHECK(bounded.losses == expected);
}

TEST_CASE("feasible budgets: what is made again takes the memory that it took in forward") {
  constexpr int64_t n = 4096;
  const DeviceScope scope(Device::create(open_backend("reference")));
  Tape& tape = *Tape::current();
  Tensor w = rand({n}).set_requires_grad();
  // A wide value, then a chain that overwrites its values. Half way, `interlude` is called.
  const auto forward = [&](const std::function<void()>& interlude) {
    Tensor x = sum(tanh(expand(reshape(w, {1, n}), {8, n}) * 0.5f), {0});  // records 0 to 4
    for (int i = 0; i < 8; ++i) {
      x = tanh(std::move(x) * 0.9f);
      if (i == 3) interlude();
    }
    return mean(square(x));
  };
  Plan plan{.segments = {{.first = 0, .last = 19}},
            .keep = {{.record = 4}, {.record = 14}, {.record = 16}, {.record = 18}}};
  Tensor loss = forward([] {});
  for (int64_t i = tape.begin(); i < tape.end(); ++i)
    plan.signature.emplace_back(tape.find(i)->op->name);
  loss.backward();
  const std::vector<float> gradient = w.grad().to_vector();
  w.set_grad({});
  loss = {};

  default_device()->take_high_water();
  {
    const PlanFollower planned(plan);
    loss = forward([] {});
  }
  const uint64_t in_forward = default_device()->take_high_water();
  loss = {};
  const int64_t first = tape.end();
  const auto segment = tape.open_segment({}, true);
  loss = forward([&] {
    while (tape.evict(UINT64_MAX)) {
    }
  });
  tape.close_segment(segment);
  default_device()->take_high_water();
  ForwardPass pass(tape, plan, nullptr, first);
  tape.enter_again(segment.number, pass.held_values(), pass);
  pass.end();
  const uint64_t held = default_device()->info().alignment;  // the loss
  CHECK(default_device()->take_high_water() <= in_forward + held);
  loss.backward();
  CHECK(w.grad().to_vector() == gradient);
}

TEST_SUITE_END();

}  // namespace rw::test
