// One number for memory: all ways against an enumeration of them, and what is chosen against runs.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <span>
#include <unistd.h>

#include "core/memory/default_device.h"
#include "dist/step_ranks.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "planner/choices/choice_text.h"
#include "planner/choices/planned_run.h"
#include "planner/choices/remedies.h"
#include "planner/forecast/rank_memory.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int64_t width = 192;  // of matrices that leave the device
using Strings = std::vector<std::string>;

class ResidualBlock : public Module {
 public:
  ResidualBlock() {
    register_module("in", in_);
    register_module("out", out_);
  }
  Tensor forward(Tensor x) override { return x + out_(gelu(in_(x))); }

 private:
  Linear in_{width, width}, out_{width, width};
};

// Six blocks, which obey all settings. Losses are sums over samples, for micro-batches of any size.
class ObedientSteps : public TrainingSteps {
 public:
  explicit ObedientSteps(const StepSettings& settings) : settings_(settings), ranks_(settings) {
    {
      const init::HostParameters there(settings.offloads_parameters());
      for (int i = 0; i < 6; ++i) net.emplace<ResidualBlock>();
    }
    net.set_checkpoint(settings.checkpoint == "block" ? settings.checkpoint_every : 0);
    std::vector<ParameterGroup> groups = ranks_.placed(net.parameters());
    optimizer_ = ranks_.has_states_in_8_bits() ? ranks_.wrap(AdamW8bit(std::move(groups), rate))
                                               : ranks_.wrap(AdamW(std::move(groups), rate));
    optimizer_->set_max_norm(1);
    parallel_ = ranks_.share(*optimizer_);
  }
  void dry_step(const BatchShape& shape) override {
    const int64_t rows = std::max<int64_t>(1, settings_.length);  // of each sample
    step(empty({shape.rows_or(settings_.batch) * rows, width}));
  }
  void step(const Tensor& x) {
    {
      const Tensor loss = mean(square(net(x)));
      optimizer_->backward(loss, settings_.fused_update ? 1 : static_cast<float>(x.size(0)));
    }
    optimizer_->step();
    optimizer_->zero_grad();
    default_device()->end_step();
  }

  Sequential net;

 private:
  static constexpr AdamWOptions rate = {.lr = 1e-3f};

  const StepSettings settings_;
  const StepRanks ranks_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<DataParallel> parallel_;
};

TrainingProgram obedient(const StepSettings& settings) {
  TrainingProgram program = {
      .make = [](const StepSettings& s) { return std::make_unique<ObedientSteps>(s); },
      .settings = settings,
      .longest = 1024};
  program.words["8-bit-states"] = "moments in 8 bits";
  return program;
}

// A device with memory of its own, which copies to host memory as fast as is said, beside a host
// that updates somewhat faster than slow_speed() lets the device.
std::unique_ptr<Backend> discrete(double bandwidth = 25e9) {
  const auto backend = open_backend("cpu");
  DeviceInfo info = backend->info();
  info.host_bandwidth = {bandwidth, bandwidth, 12e9};
  return backend->dry(info);
}

DeviceSpeed slow_speed(const DeviceInfo& info) {
  return {.flops = 1e11, .bytes = 1e10, .kernel = 1e-6, .host = info.host_bandwidth};
}

// The ways without plans, by loops of this test; of these numbers of steps, or of all.
std::vector<Choice> enumerated(const Planner& planner, const DeviceSpeed& speed,
                               std::set<int64_t> counts = {}) {
  std::vector<Choice> all;
  const StepSettings& asked = planner.settings();
  const int64_t samples = asked.batch * asked.accumulate;
  for (const char* offload :
       {"none", "states", "states+updates", "parameters", "parameters+updates"})
    for (const int fused : {0, 2})
      for (int64_t steps = 1; steps <= (fused ? 1 : samples); ++steps)
        for (const auto& [checkpoint, on_host] :
             {std::pair("none", false), {"block", false}, {"block", true}}) {
          if (samples % steps != 0 || (!counts.empty() && !counts.contains(steps))) continue;
          StepSettings settings = asked;
          settings.offload = offload;
          settings.fused_update = fused;
          settings.batch = samples / steps;
          settings.accumulate = static_cast<uint32_t>(steps);
          settings.checkpoint = checkpoint;
          settings.host_boundaries = on_host;
          const Forecast forecast = planner.measure(settings);
          all.push_back({settings, "", forecast, speed.seconds(forecast.work)});
        }
  return all;
}

// Three updates of 24 samples; returns the weights.
std::vector<std::vector<float>> train_obedient(const StepSettings& settings, MemoryReport* memory) {
  const auto device = set_default_device(open_backend("cpu"));
  manual_seed(11);
  const SettingsScope scope(settings);
  ObedientSteps steps(settings);
  for (int update = 0; update < 3; ++update) {
    std::vector<float> all(24 * width);
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = std::sin(static_cast<float>(i * (static_cast<size_t>(update) + 3)));
    const auto each = static_cast<size_t>(settings.batch * width);
    for (uint32_t i = 0; i < settings.accumulate; ++i)
      steps.step(
          tensor(std::span<const float>(all).subspan(i * each, each), {settings.batch, width}));
  }
  std::vector<std::vector<float>> weights;
  for (const Tensor& p : steps.net.parameters()) weights.push_back(p.to_vector());
  if (memory) *memory = device->memory_report();
  return weights;
}

}  // namespace

TEST_CASE("choices: a way is measured by fewer steps, which need the memory of all" *
          doctest::test_suite("host")) {
  const auto device = discrete();
  TrainingProgram program = obedient({.batch = 60});
  for (const bool has_rest : {false, true}) {
    CAPTURE(has_rest);
    if (has_rest)
      program.steps = [](int64_t batch) {
        return std::vector<BatchShape>{{.rows = batch}, {.rows = batch / 2 + 1}};
      };
    const Planner planner(program, *device);
    for (const Choice& way : enumerated(planner, slow_speed(device->info()), {1, 2, 3, 5})) {
      const Forecast all = planner.forecast(way.settings);
      CHECK_MESSAGE(way.forecast.memory.peak == all.memory.peak, way.settings.offload, " ",
                    way.settings.accumulate, " ", way.settings.checkpoint);
      CHECK(way.forecast.memory.host_peak == all.memory.host_peak);
    }
  }
}

TEST_CASE("choices: the quickest way is that of an enumeration" * doctest::test_suite("host")) {
  const auto device = discrete();
  const Planner planner(obedient({.batch = 4096}), *device);
  const DeviceSpeed speed = slow_speed(device->info());
  const std::vector<Choice> all = enumerated(planner, speed);
  Choices known(planner, planner.settings(), {.speed = speed});
  const std::vector<Choice> front = known.front();
  REQUIRE(front.size() > 5);
  CHECK(known.asked().peak() == planner.peak(planner.settings()));
  CHECK(front.back().peak() == known.least().peak());
  for (size_t i = 1; i < front.size(); ++i) {
    CHECK(front[i].peak() < front[i - 1].peak());
    CHECK(front[i].seconds >= front[i - 1].seconds);
  }
  for (int part = 1; part <= 12; ++part) {
    const uint64_t bytes =
        front.back().peak() + (front.front().peak() - front.back().peak()) * part / 12 * 103 / 100;
    CAPTURE(bytes);
    Choices choices(planner, planner.settings(), {.bytes = bytes, .speed = speed});
    const std::optional<Choice> chosen = choices.quickest();
    REQUIRE(chosen);
    CHECK(chosen->peak() <= bytes);
    CHECK(planner.peak(chosen->settings) == chosen->peak());
    CHECK(chosen->settings.batch * chosen->settings.accumulate == 4096);
    double best = 1e9;
    for (const std::vector<Choice>& ways : {all, front})
      for (const Choice& way : ways)
        if (way.peak() <= bytes / 64 * 63) best = std::min(best, way.seconds);
    CHECK(chosen->seconds <= 1.03 * best);
  }
  Choices none(planner, planner.settings(), {.bytes = front.back().peak() / 2});
  CHECK(!none.quickest());
  const std::string refusal = refusal_text(none);
  CHECK(contains(refusal, "fits in " + format_bytes(front.back().peak() / 2) + " of the device"));
  CHECK(contains(refusal, "The least is " + format_bytes(front.back().peak())));
  CHECK(!contains(refusal, "With more of the host"));
  Choices poor(planner, planner.settings(),
               {.bytes = front.back().peak(), .host_bytes = 1 << 20, .speed = speed});
  CHECK(!poor.quickest());
  CHECK(contains(refusal_text(poor),
                 "With more of the host it is " + format_bytes(front.back().peak())));
}

TEST_CASE("choices: what is chosen gives the bits and the memory that were promised") {
  const auto device = discrete();
  const StepSettings asked{.batch = 24};
  const Planner planner(obedient(asked), *device);
  const auto plain = train_obedient(asked, nullptr);
  std::set<std::string> seen;
  std::vector<Choice> fronts;
  for (const double updates : {0.0, 12e9}) {  // where the host is quick, states stay there
    DeviceSpeed speed = slow_speed(device->info());
    speed.host.updates = updates;
    for (Choice& choice : Choices(planner, asked, {.speed = speed}).front())
      fronts.push_back(std::move(choice));
  }
  for (const Choice& choice : fronts) {
    CAPTURE(choice.options);
    MemoryReport real;
    const auto weights = train_obedient(choice.settings, &real);
    CHECK(real.peak == choice.peak());
    CHECK(real.host_peak == choice.forecast.memory.host_peak);
    seen.insert(choice.settings.offload + (choice.settings.fused_update ? " fused" : ""));
    if (choice.settings.accumulate == 1) {
      CHECK(weights == plain);
      continue;
    }
    for (size_t i = 0; i < plain.size(); ++i)  // another order of sums
      for (size_t k = 0; k < plain[i].size(); ++k)
        REQUIRE(weights[i][k] == doctest::Approx(plain[i][k]).epsilon(1e-3));
  }
  CHECK(seen.contains("parameters fused"));
  CHECK(seen.contains("parameters+updates fused"));
  CHECK(seen.contains("none"));
}

TEST_CASE("choices: what is fixed stays, and what changes updates is asked for" *
          doctest::test_suite("host")) {
  const auto device = discrete();
  const TrainingProgram program = obedient({.batch = 512, .accumulate = 2, .offload = "states"});
  const Planner planner(program, *device);
  const DeviceSpeed speed = slow_speed(device->info());
  const auto front = [&](const Planner& of, Strings fixed, Strings allowed) {
    return Choices(of, of.settings(),
                   {.fixed = std::move(fixed), .allowed = std::move(allowed), .speed = speed})
        .front();
  };
  for (const Choice& choice : front(planner, {"offload", "batch", "budget"}, {})) {
    CHECK(choice.settings.offload == "states");
    CHECK(choice.settings.accumulate == 2);
    CHECK(!choice.settings.recompute);
  }
  const auto has = [](const std::vector<Choice>& choices, auto&& property) {
    return std::ranges::any_of(choices, property);
  };
  const auto in_one_pass = [](const Choice& c) { return c.settings.fused_update == 1; };
  CHECK(!has(front(planner, {}, {}), in_one_pass));
  CHECK(has(front(planner, {}, {"last-norm"}), in_one_pass));
  const auto in_8_bits = [](const Choice& c) {
    return c.settings.recompute && c.settings.recompute->in_8_bits > 0;
  };
  CHECK(!has(front(planner, {}, {}), in_8_bits));
  CHECK(has(front(planner, {"offload", "fused"}, {"8-bit-activations"}), in_8_bits));
  TrainingProgram normed = program;
  normed.has_batch_statistics = true;
  const Planner of_norms(normed, *device);
  const auto splits = [](const Choice& c) { return c.settings.batch != 512; };
  CHECK(!has(front(of_norms, {}, {}), splits));
  CHECK(has(front(of_norms, {}, {"batch-norm"}), splits));
  CHECK(
      contains(message_of<ValueError>([&] { front(planner, {}, {"nothing"}); }),
               "must be of last-norm, 8-bit-activations, 8-bit-states, batch-norm, got 'nothing'"));
  // Where the device computes in host memory, nothing is gained there.
  const auto shared = open_backend("dry:cpu");
  const Planner on_cpu(obedient({.batch = 512}), *shared);
  for (const Choice& choice : Choices(on_cpu, on_cpu.settings(), {.speed = speed}).front()) {
    CHECK(choice.settings.offload == "none");
    CHECK(!choice.settings.host_boundaries);
  }
  // Nor where the host has too little.
  Choices tight(planner, planner.settings(), {.host_bytes = 1 << 20, .speed = speed});
  for (const Choice& choice : tight.front()) CHECK(choice.forecast.memory.host_peak <= 1 << 20);
}

TEST_CASE("choices: what changes updates is offered where it gains something" *
          doctest::test_suite("host")) {
  const auto device = discrete();
  const DeviceSpeed speed = slow_speed(device->info());
  TrainingProgram program = obedient({.batch = 512});
  const Planner planner(program, *device);
  const uint64_t plain = planner.peak(planner.settings());
  const auto named = [](const auto& gains, const char* way) {
    return std::ranges::find(gains, way, [](const auto& gain) { return gain.first; });
  };
  Choices choices(planner, planner.settings(), {.bytes = plain / 2, .speed = speed});
  const Choice chosen = choices.quickest().value();
  const auto gains = choices.gains(&chosen);
  for (const auto& [way, choice] : gains) {
    CAPTURE(way);
    CHECK(choice.seconds < chosen.seconds);
    CHECK(choice.peak() <= plain / 2);
    Choices allowing(planner, planner.settings(),
                     {.bytes = plain / 2, .allowed = {way}, .speed = speed});
    CHECK(allowing.quickest().value().seconds <= 1.001 * choice.seconds);
    CHECK(allowing.gains(&choice).size() < gains.size() + 1);
  }
  const auto states = named(gains, "8-bit-states");
  REQUIRE(states != gains.end());
  CHECK(states->second.settings.states_in_8_bits);
  CHECK(contains(states->second.options, "moments in 8 bits"));
  CHECK(named(gains, "batch-norm") == gains.end());  // there are no statistics of the batch
  // A way that is fixed is not offered.
  Choices fixed(planner, planner.settings(),
                {.bytes = plain / 2, .fixed = {"8-bit-states"}, .speed = speed});
  const auto others = fixed.gains(nullptr);
  CHECK(named(others, "8-bit-states") == others.end());
  // Where nothing fits without them, the refusal names those with which something does. The device
  // has few states or none where they are offloaded.
  const Strings on_device = {"budget", "offload", "fused"};
  Choices known(planner, planner.settings(), {.fixed = on_device, .allowed = {"8-bit-states"}});
  const uint64_t least =
      planner.forecast(known.least().settings.shortened(), {.memory = DryMemory::blocks_of_device})
          .memory.peak_reserved;
  Choices small(planner, planner.settings(), {.bytes = least, .fixed = on_device});
  REQUIRE(!small.quickest());
  const std::string refusal = refusal_text(small);
  CAPTURE(refusal);
  CHECK(contains(refusal, "With allow 8-bit-states it fits, with "));
  CHECK(contains(refusal, "moments in 8 bits"));
}

TEST_CASE("choices: the most tokens with which a way fits" * doctest::test_suite("host")) {
  const auto device = discrete();
  TrainingProgram program = obedient({.batch = 4});
  const Planner planner(program, *device);
  StepSettings longer = planner.settings();
  longer.length = 320;
  const auto longest = [&](uint64_t bytes, Strings fixed = {}) {
    Choices choices(planner, planner.settings(), {.bytes = bytes, .fixed = std::move(fixed)});
    return choices.longest(choices.asked());
  };
  CHECK(longest(planner.peak(longer)) == 320);
  CHECK(longest(planner.peak(longer) - 1) == 256);
  CHECK(longest(uint64_t{1} << 40) == 1024);
  CHECK(longest(planner.peak(planner.settings())) == 0);
  CHECK(longest(uint64_t{1} << 40, {"length"}) == 0);
  program.longest = 0;
  const Planner without(program, *device);
  Choices none(without, without.settings(), {});
  CHECK(none.longest(none.asked()) == 0);
}

TEST_CASE("choices: the table says what each change saves, and the words for it" *
          doctest::test_suite("host")) {
  const auto device = discrete();
  const Planner planner(obedient({.batch = 2048}), *device);
  const uint64_t plain = planner.peak(planner.settings());
  Choices choices(planner, planner.settings(), {.bytes = plain / 3});
  const Choice chosen = choices.quickest().value();
  const std::string table = choice_table(choices, chosen);
  CHECK(contains(table, "2048 samples per update"));
  CHECK(contains(table, "as it was asked for"));
  CHECK(contains(table, format_bytes(plain)));
  CHECK(contains(table, format_bytes(chosen.peak())));
  CHECK(!chosen.options.empty());
  Choices ample(planner, planner.settings(), {.bytes = 2 * plain});
  CHECK(ample.quickest().value().options.empty());
  // Segments that were asked for go where there is room.
  StepSettings segments = planner.settings();
  segments.checkpoint = "block";
  Choices roomy(planner, segments, {.bytes = 2 * plain});
  CHECK(roomy.quickest().value().options == "checkpoint none");
  CHECK(contains(choice_table(roomy, roomy.quickest().value()), "checkpoint none"));
  // Remedies know the same ways.
  const auto remedies = find_remedies(planner, planner.settings(), plain / 3);
  CHECK(std::ranges::find(remedies, chosen.options, &Choice::options) != remedies.end());
}

TEST_CASE("choices: ranks take the way of the one that needs most" * doctest::test_suite("host")) {
  const auto device = discrete();
  const StepSettings asked{.batch = 256, .ranks = 3, .shard = "states"};
  const Planner planner(obedient(asked), *device);
  Choices choices(planner, asked, {.fixed = {"budget"}});
  uint64_t most = 0;
  for (const StepSettings& one : settings_by_rank(asked)) most = std::max(most, planner.peak(one));
  CHECK(choices.asked().peak() == most);
  const Choice least = choices.least();
  CHECK(least.settings.rank == 0);
  CHECK(least.settings.offload == "none");
  CHECK(least.settings.fused_update == 0);
  CHECK(least.peak() < most);
  CHECK(contains(least.options, fmt::format("batch {} accumulate {}", least.settings.batch,
                                            3 * least.settings.accumulate)));
}

TEST_CASE("step time: copies hide behind kernels of the same pass, and updates do not") {
  const DeviceSpeed speed{.flops = 100, .bytes = 10, .kernel = 1, .host = {2, 6, 5}};
  WorkByPhase work{};
  work[static_cast<int>(Phase::forward)] = {.flops = 200, .bytes = 20, .calls = 1};
  work[static_cast<int>(Phase::replay)] = {.flops = 100, .offloaded = 8};
  work[static_cast<int>(Phase::update)] = {.bytes = 30, .over_bus = 4, .calls = 2};
  CHECK(speed.seconds(work) == doctest::Approx(2 + 2 + 1 + 1 + 3 + 2));
  work[static_cast<int>(Phase::backward)].offloaded = 32;
  work[static_cast<int>(Phase::update)].over_bus = 40;
  CHECK(speed.seconds(work) == doctest::Approx(10 + 10));
  work[static_cast<int>(Phase::update)].on_host = 60;
  CHECK(speed.seconds(work) == doctest::Approx(10 + 12));
  const DeviceSpeed without{.flops = 100, .bytes = 10, .kernel = 1};
  CHECK(without.seconds(work) == doctest::Approx(6 + 5));
  const DeviceSpeed measured = measure_speed(default_device(), DType::f32);
  CHECK(measured.is_measured);
  CHECK(measured.flops > 1e6);
  CHECK(measured.bytes > 1e6);
  CHECK(measured.kernel > 0);
  CHECK(measured.kernel < 1);
}

TEST_CASE("spare_host_bytes: no more than a limit of this process leaves") {
  const uint64_t spare = spare_host_bytes();
  CHECK(spare > 0);
  CHECK(spare < host_memory_bytes());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  constexpr uint64_t room = 64 << 20;
  rlimit tight = before;
  tight.rlim_cur = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + room;
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  const uint64_t left = spare_host_bytes();
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(left <= room);
  CHECK(left >= room / 2);
}
