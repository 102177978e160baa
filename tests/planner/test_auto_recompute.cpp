// Recomputation in programs that do not ask for it.
#include <filesystem>
#include <thread>

#include "core/autograd/gradients.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/adam.h"
#include "planner/auto_recompute.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using test::contains;
using test::CpuDevice;
using test::Env;
using test::message_of;
using test::some_values;
using Mode = AutoRecomputeOptions::Mode;

namespace {

struct Gelu : Module {
  Tensor forward(Tensor x) override { return gelu(std::move(x)); }
};

// A program as a user writes it. `rows` has the rows of each step's batch.
class UserProgram {
 public:
  UserProgram() : seeded_((manual_seed(3), true)), optimizer_(build(model_).parameters()) {}

  float step(int64_t rows = 64) {
    const auto seed = static_cast<int>(++steps_ + rows);
    const Tensor x = tensor(some_values(static_cast<int>(rows) * 32, seed), {rows, 32});
    const Tensor loss = mean(square(model_(x)));
    loss.backward();
    optimizer_.step();
    optimizer_.zero_grad();
    return loss.item();
  }
  // Makes another kind of pass, without a backward.
  float look() {
    const Tensor x = tensor(some_values(8 * 32, 5), {8, 32});
    return mean(model_(x)).item();
  }
  Module& model() { return model_; }

 private:
  static Sequential& build(Sequential& model) {
    for (int i = 0; i < 8; ++i) {
      model.emplace<Linear>(32, 32);
      model.emplace<Gelu>();
      model.emplace<Dropout>(0.2f);
    }
    return model;
  }

  bool seeded_;
  Sequential model_;
  Adam optimizer_;
  int64_t steps_ = 0;
};

struct RecomputedResult {
  std::vector<float> losses;
  uint64_t peak = 0, replayed = 0;
  std::vector<std::string> kinds;
};

// Runs the program under some recomputation, on a device of its own.
template <class Body>
RecomputedResult run_recomputed(std::optional<AutoRecomputeOptions> options, Body&& body) {
  const CpuDevice device;
  const uint64_t before = CpuDevice::tape().replayed_records();
  RecomputedResult result;
  {
    std::optional<AutoRecompute> recompute;
    if (options) recompute.emplace(*options);
    UserProgram program;
    body(program, result.losses);
    if (recompute) result.kinds = recompute->kinds();
  }
  result.peak = device.device->memory_report().peak;
  result.replayed = CpuDevice::tape().replayed_records() - before;
  return result;
}

const auto five_steps = [](UserProgram& program, std::vector<float>& losses) {
  for (int i = 0; i < 5; ++i) losses.push_back(program.step());
};

TEST_SUITE_BEGIN("host");

TEST_CASE("auto recompute: the same losses, with less memory") {
  const RecomputedResult plain = run_recomputed({}, five_steps);
  CHECK(plain.replayed == 0);
  const RecomputedResult memory = run_recomputed({{.mode = Mode::memory}}, five_steps);
  CHECK(memory.losses == plain.losses);
  CHECK(memory.replayed > 0);
  REQUIRE(memory.kinds.size() == 1);
  CHECK(contains(memory.kinds[0], "5 passes"));
  CHECK(contains(memory.kinds[0], "planned"));
  const RecomputedResult speed = run_recomputed({{.mode = Mode::speed}}, five_steps);
  CHECK(speed.losses == plain.losses);
  CHECK(speed.replayed > 0);

  const uint64_t budget = plain.peak * 8 / 10;
  for (const Mode mode : {Mode::budget, Mode::evict}) {
    const RecomputedResult bounded = run_recomputed({{.mode = mode, .budget = budget}}, five_steps);
    CAPTURE(bounded.kinds);
    CHECK(bounded.losses == plain.losses);
    CHECK(bounded.peak <= budget);
    CHECK(bounded.replayed > 0);
    REQUIRE(bounded.kinds.size() == 1);
    CHECK(contains(bounded.kinds[0], mode == Mode::budget ? "planned" : "evicted"));
  }
  // A plan replays at most as much as eviction does.
  const RecomputedResult roomy = run_recomputed({{.budget = plain.peak * 2}}, five_steps);
  CHECK(roomy.losses == plain.losses);
  CHECK(roomy.replayed == 0);
}

TEST_CASE("auto recompute: steps of other sizes, and passes without a backward") {
  const auto body = [](UserProgram& program, std::vector<float>& losses) {
    for (int i = 0; i < 12; ++i) {
      losses.push_back(program.step(i % 3 == 2 ? 40 : 64));
      if (i == 5) losses.push_back(program.look());
      if (i == 7) {
        const NoGrad guard;
        program.model().eval();
        losses.push_back(program.look());
        program.model().train();
      }
    }
  };
  const RecomputedResult plain = run_recomputed({}, body);
  const uint64_t budget = plain.peak * 8 / 10;
  const RecomputedResult bounded = run_recomputed({{.budget = budget}}, body);
  CAPTURE(bounded.kinds);
  CHECK(bounded.losses == plain.losses);
  CHECK(bounded.peak <= budget);
  CHECK(bounded.kinds.size() >= 2);  // by sizes
  const RecomputedResult memory = run_recomputed({{.mode = Mode::memory}}, body);
  CAPTURE(memory.kinds);
  CHECK(memory.losses == plain.losses);
  CHECK(memory.replayed > 0);
}

TEST_CASE("auto recompute: a plan is left at whichever record has another size") {
  constexpr int layers = 10;
  const auto losses = [](std::optional<AutoRecomputeOptions> options, uint64_t& peak) {
    const CpuDevice device;
    std::optional<AutoRecompute> recompute;
    if (options) recompute.emplace(*options);
    const Tensor weight = test::leaf(64 * 64);
    std::vector<float> losses;
    for (int pass = 0; pass < 3 * layers; ++pass) {
      Tensor y = tensor(some_values(64 * 64, pass), {64, 64});
      for (int i = 0; i < layers; ++i) {
        const bool is_other = pass % 3 == 2 && i == pass / 3;
        y = slice(y, 0, 0, y.size(0) - (is_other ? 9 : 1));
        y = tanh(matmul(y, reshape(weight, {64, 64})));
      }
      const Tensor loss = mean(square(y));
      loss.backward();
      losses.push_back(loss.item());
      losses.push_back(mean(Tensor(weight).grad()).item());
    }
    peak = device.device->memory_report().peak;
    return losses;
  };
  uint64_t peak = 0, bounded = 0;
  const std::vector<float> plain = losses({}, peak);
  CHECK(losses({{.budget = peak * 7 / 10}}, bounded) == plain);
  CHECK(bounded <= peak * 7 / 10);
}

TEST_CASE("auto recompute: of ever other sizes the last are known") {
  const auto body = [](UserProgram& program, std::vector<float>& losses) {
    for (int64_t rows = 2; rows <= 160; rows += 2) losses.push_back(program.step(rows));
    for (int i = 0; i < 3; ++i) losses.push_back(program.step(120));
    // It differs from the expected pass from the first record on.
    losses.push_back(program.step(160));
    losses.push_back(program.step(2));  // its kind was forgotten
  };
  const RecomputedResult plain = run_recomputed({}, body);
  const RecomputedResult bounded = run_recomputed({{.budget = plain.peak * 9 / 10}}, body);
  CHECK(bounded.losses == plain.losses);
  CHECK(bounded.kinds.size() == 64);
  const auto count = [&](const char* what) {
    return std::count_if(bounded.kinds.begin(), bounded.kinds.end(),
                         [&](const std::string& kind) { return contains(kind, what); });
  };
  CHECK(count("4 passes") == 1);
  CHECK(count("2 passes") == 1);
  CHECK(count("planned") == 2);
}

TEST_CASE("auto recompute: gives way to a plan of the program's own") {
  const CpuDevice device;
  const AutoRecompute recompute({.mode = Mode::memory});
  const Tensor w = test::leaf(16);
  const auto loss = [&] { return sum(gelu(tanh(w * 2.0f))); };
  loss().backward();
  const std::vector<float> expected = w.grad().to_vector();
  w.impl().grad = {};
  Tensor y;
  {
    const PlanFollower own({});
    y = loss();
  }
  y.backward();
  CHECK(w.grad().to_vector() == expected);
  const Tensor begun = tanh(w * 2.0f);  // before the program's scope begins
  w.impl().grad = {};
  {
    const PlanFollower own({});
    y = sum(gelu(begun));
  }
  y.backward();
  CHECK(w.grad().to_vector() == expected);
}

TEST_CASE("auto recompute: what cannot be") {
  const CpuDevice device;
  CHECK_THROWS_AS(AutoRecompute({.mode = Mode::budget}), ValueError);
  CHECK_THROWS_AS(AutoRecompute({.mode = Mode::evict}), ValueError);
  const AutoRecompute recompute({.budget = 20000});
  CHECK_THROWS_AS(AutoRecompute({.mode = Mode::memory}), AutogradError);
  const Tensor w = test::leaf(16);
  const std::string error = message_of<OutOfMemory>([&] { sum(full({100, 100}, 1) * 2.0f); });
  CHECK(contains(error, "the memory budget is 19.53 KiB"));
  CHECK(contains(error, "(40000 bytes, which take 40192 in units of 256)"));
  CHECK(contains(error, "with this value 39."));  // the live values
  sum(w * w).backward();                          // the tape works again
  CHECK(w.grad().defined());
}

void steps_of_user_program(std::vector<float>& losses) {
  UserProgram program;
  five_steps(program, losses);
}

// Updates a weight by hand.
void steps_without_optimizer(std::vector<float>& losses) {
  Tensor w = test::leaf(5000);
  for (int step = 0; step < 3; ++step) {
    Tensor x = w * 1.0f;
    for (int i = 0; i < 40; ++i) x = tanh(x * 1.1f);
    const Tensor loss = sum(x);
    losses.push_back(loss.item());
    loss.backward();
    const NoGrad guard;
    w.copy_(w - w.grad() * 0.1f);
    w.set_grad({});
  }
}

// Takes steps in a thread of their own, which has read no variable yet.
RecomputedResult in_new_thread(void (*steps)(std::vector<float>& losses) = steps_of_user_program) {
  RecomputedResult result;
  std::exception_ptr error;
  std::thread([&] {
    try {
      const DeviceScope scope(Device::create(open_backend("reference")));
      steps(result.losses);
      result.peak = default_device()->memory_report().peak;
      result.replayed = Tape::current()->replayed_records();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return result;
}

TEST_CASE("environment: budget, way to recompute and timeline of a program that says nothing") {
  const RecomputedResult plain = in_new_thread();
  CHECK(plain.replayed == 0);
  const auto with = [](const char* budget, const char* how) {
    const Env bytes("REWIND_MEMORY_BUDGET", budget), recompute("REWIND_RECOMPUTE", how);
    return in_new_thread();
  };
  const uint64_t budget = plain.peak * 8 / 10;
  for (const char* how : {"", "evict"}) {
    const RecomputedResult bounded = with(std::to_string(budget).c_str(), how);
    CHECK(bounded.losses == plain.losses);
    CHECK(bounded.peak <= budget);
    CHECK(bounded.replayed > 0);
  }
  for (const char* how : {"memory", "speed", "block"}) {
    CAPTURE(how);
    const RecomputedResult less = with("", how);
    CHECK(less.losses == plain.losses);
    CHECK(less.replayed > 0);
  }
  const auto refused = [&](const char* bytes, const char* how) {
    return message_of<ValueError>([&] { with(bytes, how); });
  };
  CHECK(contains(refused("", "everything"),
                 "must be memory, speed, evict, collection:NAME,... or block, got"));
  CHECK(contains(refused("", "evict"), "REWIND_MEMORY_BUDGET"));
  CHECK(contains(refused("a lot", ""), "a lot"));
  CHECK(message_of<OutOfMemory>([&] { with("100000", ""); }) != "nothing was thrown");

  const RecomputedResult by_hand = in_new_thread(steps_without_optimizer);
  const Env half("REWIND_MEMORY_BUDGET", std::to_string(by_hand.peak / 2).c_str());
  const RecomputedResult bounded = in_new_thread(steps_without_optimizer);
  CHECK(bounded.losses == by_hand.losses);
  CHECK(bounded.peak <= by_hand.peak / 2);

  const Env no_budget("REWIND_MEMORY_BUDGET", "");
  const TemporaryFolder folder;
  const std::filesystem::path page = folder / "page.html";
  const Env timeline("REWIND_TIMELINE", page.c_str());
  in_new_thread();
  CHECK(std::filesystem::file_size(page) > 10000);
}

// Blocks of a user's own module.
struct UserBlock : Module {
  UserBlock() {
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward(Tensor x) override { return second(gelu(first(std::move(x)))); }
  Linear first{8, 8}, second{8, 8};
};
struct UserNet : Module {
  UserNet() {
    register_module("a", a);
    register_module("b", b);
  }
  Tensor forward(Tensor x) override { return b(a(std::move(x))); }
  UserBlock a, b;
};

TEST_CASE("environment: blocks of any module and of a Sequential become segments") {
  const CpuDevice device;
  UserNet net;
  Sequential flat;
  for (int i = 0; i < 9; ++i) flat.emplace<Linear>(8, 8);
  const Tensor x = tensor(some_values(16), {2, 8});
  const auto segments = [&](Module& model) {
    const Tensor y = sum(square(model(x)));
    const uint64_t count = CpuDevice::tape().stats().segments;
    const std::vector<Tensor> g = grad({y}, model.parameters());
    std::vector<std::vector<float>> values;
    for (const Tensor& t : g) values.push_back(t.to_vector());
    return std::pair(count, values);
  };
  const auto plain_net = segments(net), plain_flat = segments(flat);
  CHECK(plain_net.first == 0);
  CHECK(plain_flat.first == 0);
  const Env block("REWIND_RECOMPUTE", "block");
  const auto marked_net = segments(net), marked_flat = segments(flat);
  CHECK(marked_net.first == 2);
  CHECK(marked_flat.first == 3);
  CHECK(marked_net.second == plain_net.second);
  CHECK(marked_flat.second == plain_flat.second);
  flat.checkpoint_every(0);  // the program's own setting wins
  CHECK(segments(flat).first == 0);
  net.eval();
  CHECK(segments(net).first == 0);
}

TEST_SUITE_END();

}  // namespace
