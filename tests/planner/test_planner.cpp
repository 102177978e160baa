// Planning of a user's own program: predictions come true, and budgets are kept.
#include "core/memory/default_device.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "nn/summary.h"
#include "optim/adam.h"
#include "planner/choices/planned_run.h"
#include "planner/forecast/estimate.h"
#include "planner/forecast/fit.h"
#include "planner/forecast/largest.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::contains;
using test::CpuDevice;
using test::message_of;
using Mode = AutoRecomputeOptions::Mode;

namespace {

constexpr int64_t planned_width = 64;

class PlannedBlock : public Module {
 public:
  PlannedBlock() {
    register_module("in", in_);
    register_module("out", out_);
  }
  Tensor forward(Tensor x) override { return checkpoint_name(x + out_(gelu(in_(x))), "block"); }

 private:
  Linear in_{planned_width, planned_width}, out_{planned_width, planned_width};
};

class PlannedNet : public Module {
 public:
  PlannedNet() {
    for (int i = 0; i < 8; ++i) blocks_.emplace<PlannedBlock>();
    register_module("blocks", blocks_);
  }
  Tensor forward(Tensor x) override { return blocks_(std::move(x)); }

 private:
  Sequential blocks_;
};

void train_on(PlannedNet& net, Adam& adam, const StepSettings& s, Tensor x) {
  const Autocast autocast(s.dtype, s.dtype != DType::f32);
  adam.backward(mean(square(net(std::move(x)))));
  adam.step();
  adam.zero_grad();
}

const MakeSteps planned_steps = training_steps([](const StepSettings& s) {
  auto net = std::make_shared<PlannedNet>();
  auto adam = std::make_shared<Adam>(net->parameters());
  return [=] { train_on(*net, *adam, s, empty({s.batch, planned_width})); };
});

struct TrainedSteps {
  std::vector<float> weights;
  MemoryReport memory;
};

// Takes three steps on a new device, as a user does.
TrainedSteps train_planned(const StepSettings& settings,
                           const std::optional<AutoRecomputeOptions>& how = {}) {
  const auto device = set_default_device(open_backend("reference"));
  manual_seed(7);
  PlannedRun run({.make = planned_steps, .settings = settings}, how);
  TrainedSteps result;
  run.guard([&] {
    PlannedNet net;
    Adam adam(net.parameters());
    for (int i = 0; i < 3; ++i)
      train_on(net, adam, run.settings(), randn({run.settings().batch, planned_width}));
    result.weights = net.parameters()[0].to_vector();
  });
  result.memory = run.account().memory;
  CHECK(result.memory.peak == run.account().predicted_peak);
  CHECK(result.memory.plan_misses == 0);
  return result;
}

}  // namespace

TEST_CASE("planner: the forecast of a user's program is exact, whatever recomputes" *
          doctest::test_suite("host")) {
  const auto cpu = open_backend("reference");
  const Planner planner({.make = planned_steps, .settings = {.batch = 96}}, *cpu);
  const uint64_t peak = planner.forecast().memory.peak;
  const TrainedSteps plain = train_planned({.batch = 96});
  CHECK(plain.memory.peak == peak);
  CHECK(planner.peak(planner.settings()) == peak);
  CHECK(planner.forecast().memory.peak_reserved == plain.memory.peak_reserved);

  const TrainedSteps block = train_planned({.batch = 96, .checkpoint = "block"});
  CHECK(block.memory.peak < peak);
  CHECK(block.weights == plain.weights);
  const uint64_t least = planner.search(planner.settings()).candidates().back().peak();
  const uint64_t middle = (peak + least) / 2;
  for (const AutoRecomputeOptions& how :
       {AutoRecomputeOptions{.mode = Mode::memory}, AutoRecomputeOptions{.mode = Mode::speed},
        AutoRecomputeOptions{.mode = Mode::collection, .collection = {"block"}},
        AutoRecomputeOptions{.budget = middle},
        AutoRecomputeOptions{.mode = Mode::evict, .budget = middle}}) {
    INFO("mode " << static_cast<int>(how.mode));
    const TrainedSteps other = train_planned({.batch = 96}, how);
    CHECK(other.weights == plain.weights);
    CHECK(other.memory.peak < peak);
    if (how.budget) CHECK(other.memory.peak <= how.budget);
    // Blocks stay within a planned budget, too.
    if (how.mode == Mode::budget) CHECK(other.memory.peak_reserved <= how.budget);
  }
}

TEST_CASE("planner: f16 follows the settings, and the whole table adds up" *
          doctest::test_suite("host")) {
  const auto cpu = open_backend("reference");
  const Planner planner({.make = planned_steps, .settings = {.batch = 64}}, *cpu);
  CHECK(planner.peak({.dtype = DType::f16, .batch = 64}) < planner.peak({.batch = 64}));
  const std::vector<Saving> savings = attribute_savings(planner);
  CHECK(savings.back().peak == planner.forecast().memory.peak);
  const Estimate usual = estimate(planner);
  CHECK(usual.parameters ==
        8 * 2 * (planned_width * planned_width + planned_width) * sizeof(float));
  // A block has two products, their biases, gelu and the sum; the square and its mean follow. A
  // value takes 256 bytes at least.
  constexpr uint64_t values = 64 * planned_width * sizeof(float);
  CHECK(usual.outputs == (8 * 6 + 1) * values + 256);

  const uint64_t bytes = planner.forecast().memory.peak;
  size_t told = 0;
  const auto rows =
      fit(planner, bytes, {.on_row = [&](const FitRow&) { ++told; }, .candidates = 4});
  REQUIRE(!rows.empty());
  CHECK(told >= rows.size());
  CHECK(rows[0].settings.batch >= 64);
  for (const FitRow& row : rows) {
    CHECK(row.forecast.memory.peak_reserved <= bytes);
    for (const FitRow& other : rows)  // no row beats another in everything
      if (row.settings.dtype == other.settings.dtype)
        CHECK_FALSE((other.settings.batch > row.settings.batch &&
                     other.forecast.recompute_share() <= row.forecast.recompute_share()));
  }
  const auto by_threads = fit(planner, bytes, {.candidates = 4, .threads = 3});
  CHECK(fit_table(by_threads, bytes) == fit_table(rows, bytes));
}

// Optimizers announce the end of a step, which then comes with the next allocation.
TEST_CASE("planner: a planned run is packed from its first step on, and all others are, too" *
          doctest::test_suite("host")) {
  const MemoryReport memory = train_planned({.batch = 256}).memory;
  CHECK(memory.followed_steps == 2);  // of three, the last of which nothing has ended
  CHECK(memory.plan_misses == 0);
  CHECK(memory.peak_reserved <= memory.peak + memory.peak / 20);
}

TEST_CASE("planner: a way that a program does not know gives no row of its own" *
          doctest::test_suite("host")) {
  const auto cpu = open_backend("reference");
  const Planner planner({.make = planned_steps}, *cpu);
  const auto rows = fit(planner, 4 << 20, {.dtypes = {DType::f32}, .candidates = 4});
  REQUIRE(rows.size() > 1);
  CHECK(rows[0].mode == "plain");
  CHECK(rows[0].cost == 1);
  for (const FitRow& row : rows) CHECK(!contains(row.mode, "fused"));
}

TEST_CASE("planner: a limit other than the memory is named" * doctest::test_suite("host")) {
  const auto cpu = open_backend("reference");
  DeviceInfo limits = cpu->info();
  limits.max_block_bytes = 1 << 20;
  const auto dry = cpu->dry(limits);
  const Planner planner({.make = planned_steps}, *dry);
  const auto rows = fit(planner, uint64_t{1} << 30, {.dtypes = {DType::f32}, .candidates = 2});
  REQUIRE(!rows.empty());
  CHECK(rows[0].settings.batch ==
        (1 << 20) / (planned_width * 4));  // a tensor of them fills a block
  CHECK(contains(rows[0].limit, "largest block"));
  CHECK(contains(fit_table(rows, uint64_t{1} << 30), "limited by the driver's largest block"));
}

namespace {

// Takes steps of as many rows as it is asked for, and notes them.
class NotedSteps : public TrainingSteps {
 public:
  explicit NotedSteps(std::vector<int64_t>& rows) : rows_(rows) {}
  void dry_step(const BatchShape& shape) override {
    rows_.push_back(shape.rows_or(4));
    const Tensor x = empty({rows_.back(), 1024}, DType::f32);
    default_device()->end_step();
  }

 private:
  std::vector<int64_t>& rows_;
};

}  // namespace

TEST_CASE("planner: the last batches of an epoch are in the forecast, if it trains" *
          doctest::test_suite("host")) {
  const auto cpu = open_backend("reference");
  std::vector<int64_t> rows;
  TrainingProgram program{
      .make = [&](const StepSettings&) { return std::make_unique<NotedSteps>(rows); },
      .settings = {.batch = 4}};
  program.steps = [](int64_t batch) {
    return std::vector<BatchShape>{{.rows = batch}, {.rows = 64}};
  };
  const uint64_t peak = Planner(program, *cpu).peak(program.settings);
  CHECK(rows == std::vector<int64_t>{4, 4, 64});
  CHECK(peak >= 64 * 1024 * sizeof(float));
  rows.clear();
  program.trains = false;
  CHECK(Planner(program, *cpu).peak(program.settings) < 4 * 1024 * sizeof(float));
  CHECK(rows.empty());
}

TEST_CASE("planner: what cannot be met says what can" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TrainingProgram program{.make = planned_steps, .settings = {.batch = 96}};
  for (const Mode mode : {Mode::budget, Mode::evict, Mode::memory}) {
    INFO("mode " << static_cast<int>(mode));
    const std::string text = message_of<OutOfMemory>(
        [&] { PlannedRun(program, AutoRecomputeOptions{.mode = mode, .budget = 100'000}); });
    CHECK(contains(text, "The least that it can do with is"));
    CHECK(contains(text, "The run as it is needs"));
    CHECK(default_device()->memory_report().peak_reserved <= 100'000);
  }
  const uint64_t least = [&] {
    return Planner(program).search(program.settings).candidates().back().peak();
  }();
  CHECK_NOTHROW(PlannedRun(program, AutoRecomputeOptions{.budget = least}));
  CHECK(contains(message_of<ValueError>([] { Planner planner(TrainingProgram{}); }), "make()"));
  const MakeSteps same =
      training_steps([](const StepSettings&) { return [] { default_device()->end_step(); }; });
  CHECK(contains(
      message_of<ValueError>([&] { Planner({.make = same}).largest_batch({}, uint64_t{1} << 30); }),
      "must grow"));
}

TEST_CASE("planner: the largest number within a limit takes few tries, from any guess" *
          doctest::test_suite("host")) {
  for (const double fixed : {0.0, 1e3, 1e6, 9.9e6})
    for (const double each : {1.0, 77.0, 1e4, 3e6})
      for (const double curve : {0.0, 0.01})
        for (const int64_t guess : {1, 7, 1000, 100000}) {
          int tries = 0;
          const auto needs = [&](int64_t n) -> std::optional<uint64_t> {
            ++tries;
            const auto x = static_cast<double>(n);
            return static_cast<uint64_t>(std::min(1e18, fixed + each * x + curve * x * x));
          };
          const uint64_t limit = 10'000'000;
          const int64_t n = largest_within(needs, limit, guess);
          CHECK(tries <= (curve > 0 ? 40 : 12));
          CHECK((n == 0 || *needs(n) <= limit));
          CHECK(*needs(n + 1) > limit);
        }
  CHECK(largest_within([](int64_t) { return std::optional<uint64_t>(1); }, 5) == no_largest);
  CHECK(largest_within([](int64_t) { return std::optional<uint64_t>(); }, 5, 9) == 0);
}

TEST_CASE_FIXTURE(CpuDevice, "planner: a recomputation scope around a loop plans every pass" *
                                 doctest::test_suite("host")) {
  const auto pass = [](bool backward) {
    manual_seed(3);
    PlannedNet net;
    const Tensor loss = mean(square(net(randn({64, planned_width}))));
    if (backward) loss.backward();
    return backward ? net.parameters()[0].grad().to_vector() : std::vector<float>();
  };
  Search search([] { return open_backend("dry:reference"); }, [&] { pass(true); });
  device->reset_peak();
  const auto plain = pass(true);
  const uint64_t kept = device->memory_report().peak;
  const PlanFollower scope(search.memory().plan);
  for (int i = 0; i < 3; ++i) {
    pass(false);  // a pass whose gradient nobody wants is a pass of its own
    device->reset_peak();
    CHECK(pass(true) == plain);
    CHECK(device->memory_report().peak < kept);
    CHECK_FALSE(scope.diverged());
  }
}

TEST_CASE_FIXTURE(CpuDevice, "planner: named values are kept, what is between them is not" *
                                 doctest::test_suite("host")) {
  const auto saved = [&](const SavePolicy& policy) {
    const Tensor w = test::leaf(1000);
    const CheckpointScope segment(true, policy);
    const Tensor y = sum(tanh(checkpoint_name(tanh(tanh(w)), "middle")));
    return Tape::current()->stats().saved_bytes;
  };
  const uint64_t nothing = saved(save_nothing()), named = saved(save_ops({"middle"}));
  CHECK(named == nothing + 4000);
  CHECK(saved(save_ops({"checkpoint_name"})) == nothing);
}

TEST_CASE_FIXTURE(CpuDevice, "planner: blocks are checkpointed by a scope, whatever else says" *
                                 doctest::test_suite("host")) {
  PlannedNet net;
  const auto segments = [&] {
    const Tensor y = net(randn({8, planned_width}));
    return Tape::current()->stats().segments;
  };
  CHECK(segments() == 0);
  {
    const BlockCheckpoints blocks;
    CHECK(segments() == 8);
    const BlockCheckpoints none(false);
    CHECK(segments() == 0);
  }
  CHECK(segments() == 0);
}

TEST_CASE_FIXTURE(CpuDevice, "autocast: a scope around backward changes no gradient" *
                                 doctest::test_suite("host")) {
  const Tensor w = randn({planned_width, planned_width}), x = randn({16, planned_width});
  const auto gradient = [&](bool around) {
    const Tensor leaf = w.detach().set_requires_grad();
    const Tensor loss = mean(square(matmul(x, leaf)));
    {
      const Autocast half(DType::f16, around);
      loss.backward();
      if (around) CHECK(matmul(x, w).dtype() == DType::f16);  // it is still open
    }
    return leaf.grad().to_vector();
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE_FIXTURE(CpuDevice, "summary: what a model returns, computes and leaves to be kept" *
                                 doctest::test_suite("host")) {
  Sequential model;
  model.emplace<Linear>(8, 32);
  model.emplace<ReLU>();
  model.emplace<Linear>(32, 4, false);
  const Summary s = summary(model, randn({64, 8}));
  REQUIRE(s.rows.size() >= 3);
  CHECK(s.parameters == 8 * 32 + 32 + 32 * 4);
  CHECK(s.rows[0].layer == "0");
  CHECK(s.folded(1).rows[0].parameters == 8 * 32 + 32);
  CHECK(s.rows[0].output == Shape{64, 32});
  CHECK(s.rows[0].flops >= 2 * 64 * 8 * 32);
  CHECK(s.input_kept == 64 * 8 * 4);  // the first layer's weight gradient reads the input
  uint64_t of_relu = 0;
  for (const SummaryRow& row : s.rows)
    if (row.op == "relu") of_relu = row.kept;
  CHECK(of_relu == 64 * 32 * 4);
  CHECK(s.kept() == of_relu);  // relu's gradient reads a value that the next layer keeps anyway
  CHECK(s.folded(1).rows.size() == 2);
  CHECK(s.folded(1).flops() == s.flops());
  CHECK(contains(s.str(), "416 parameters"));
  CHECK(contains(s.folded(1).str(), "416 parameters"));
  const CheckpointScope segment;
  CHECK(summary(model, randn({64, 8})).str() == s.str());  // in a segment, too
}

TEST_CASE("planner: a program whose steps differ says what differs" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  // Every other step has one more op.
  const MakeSteps alternating = training_steps([](const StepSettings& s) {
    auto net = std::make_shared<PlannedNet>();
    auto steps = std::make_shared<int>(0);
    return [=] {
      Tensor y = net->forward(empty({s.batch, planned_width}));
      mean(square((*steps)++ % 2 == 0 ? y : relu(y))).backward();
      for (Tensor p : net->parameters()) p.set_grad({});
      default_device()->end_step();
    };
  });
  const Planner planner({.make = alternating, .settings = {.batch = 64}});
  Search search = planner.search(planner.settings());
  const std::string text = message_of<OutOfMemory>([&] { search.budget(1000); });
  CHECK(contains(text, "not all steps are alike: op "));
  CHECK(contains(text, "of the forward pass is 'relu', the plan has 'square'"));
}
