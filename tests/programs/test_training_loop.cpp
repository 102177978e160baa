// The loop of the programs: stopped by signals, resumed, and refused.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <signal.h>

#include "apps/mnist/steps.h"
#include "core/base/interrupt.h"
#include "io/models/model.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "trainer/loop/training_loop.h"
#include "trainer/program/numerics.h"

using namespace rw;
using test::some_values;
namespace fs = std::filesystem;

namespace {

constexpr int64_t all_steps = 7, batches = 3;

struct LoopTraining {
  explicit LoopTraining(const fs::path& folder, Settings settings = {{"--lr", "0.001"}},
                        int64_t total = all_steps, bool restart = false, bool change_dtype = false,
                        bool allow_rise = false)
      : seeded((manual_seed(5), true)),
        steps({}, StepSettings{.dtype = DType::f32, .batch = 2, .accumulate = 2}),
        planned({.title = "test",
                 .samples = "images",
                 .make =
                     [](const StepSettings& s) {
                       return std::make_unique<MnistSteps>(MnistTask::Recipe(), s);
                     },
                 .settings = {.dtype = DType::f32, .batch = 2, .accumulate = 2}}),
        loop({.steps = total,
              .batches = batches,
              .quiet = true,
              .snapshots = folder,
              .steps_per_snapshot = 100,
              .restart = restart,
              .change_dtype = change_dtype,
              .allow_rise = allow_rise,
              .find_overflow = [] { return std::string(": relu (op 3) was the first"); },
              .settings = std::move(settings)},
             steps.model, *steps.optimizer, steps.meter, planned) {}

  // The signal comes during the step with this number.
  void run(int64_t interrupted = -1, int signal = SIGINT) {
    loop.resume();
    loop.run([&](int64_t i) {
      if (i == interrupted) raise(signal);
      const auto seed = static_cast<int>(i);
      steps.step({.pixels = some_values(2 * 784, seed), .labels = {seed % 10, 3}});
      return 2;
    });
  }
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (const auto& [name, t] : state_dict(steps.model)) all.push_back(t.to_vector());
    return all;
  }

  bool seeded;
  MnistSteps steps;
  PlannedRun planned;
  TrainingLoop loop;
};

// Returns the message of the FileError with which resuming ends.
std::string resume_refusal(LoopTraining&& training) {
  try {
    training.loop.resume();
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

// Runs as many steps as there are losses, which stand for those of the steps.
std::string verdict_of_losses(const std::vector<float>& losses, bool allow_rise = false,
                              double targets = 1000) {
  LoopTraining training("", {}, std::ssize(losses), false, false, allow_rise);
  return test::message_of<NumericsError>(
      [&] {
        training.loop.run([&](int64_t i) {
          training.steps.step({.pixels = some_values(2 * 784, 1), .labels = {3, 3}});
          training.steps.meter.clear();
          training.steps.meter.add(full({}, losses[static_cast<size_t>(i)]), targets);
          return 2;
        });
      },
      "trained");
}

}  // namespace

TEST_CASE("training loop: a signal ends it after the step, and it goes on with the same bits" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  LoopTraining whole("");
  whole.run();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (int64_t at = 0; at < all_steps; ++at) {
      CAPTURE(at);
      const TemporaryFolder folder;
      {
        LoopTraining stopped(folder.path);
        try {
          stopped.run(at, signal);
          FAIL("it must stop");
        } catch (const Interrupted& stop) {
          CHECK(stop.signal == signal);
          // The signal also comes inside a window of two steps.
          CHECK(std::string(stop.what()).find(fmt::format("after step {} of 7", at + 1)) !=
                std::string::npos);
        }
      }
      LoopTraining resumed(folder.path);
      resumed.run();
      CHECK(resumed.values() == whole.values());
    }
  }
}

TEST_CASE("training loop: without snapshots a signal ends it after the step" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  LoopTraining training("");
  CHECK_THROWS_WITH_AS(training.run(2), doctest::Contains("after step 3 of 7; nothing is kept"),
                       Interrupted);
}

TEST_CASE("training loop: only its own snapshots are gone on with" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  // The name of a folder is bytes, which JSON cannot hold as they are.
  const Settings settings = {{"--load", "pictures\xff"}, {"--lr", "0.1"}};
  {
    LoopTraining training(folder.path, settings);
    CHECK_THROWS_AS(training.run(3), Interrupted);
    CHECK_FALSE(training.loop.json().dump().empty());
  }
  CHECK(resume_refusal(LoopTraining(folder.path, settings)) == "accepted");
  CHECK(resume_refusal(LoopTraining(folder.path))
            .find("is of another version of this program: both must have --load; ") !=
        std::string::npos);
  CHECK(resume_refusal(LoopTraining(folder.path, settings, 3))
            .find("must be in 3 steps, 3 per epoch, got step 4") != std::string::npos);

  // Settings that may change, and others that may not.
  const auto with = [](const char* lr, const char* dtype, const char* checkpoint) {
    return Settings{{"--lr", lr}, {"--dtype", dtype}, {"--checkpoint", checkpoint}};
  };
  const TemporaryFolder other;
  {
    LoopTraining training(other.path, with("0.1", "f32", "none"));
    CHECK_THROWS_AS(training.run(0), Interrupted);
  }
  CHECK(resume_refusal(LoopTraining(other.path, with("0.1", "f16", "none")))
            .find("--dtype was f32 there and is f16 now (--change-dtype allows that); resume") !=
        std::string::npos);
  {
    LoopTraining longer(other.path, with("0.1", "f16", "block"), 9, false, true);
    longer.steps.optimizer->set_scaler(LossScaler::dynamic(1024));  // the scaler of the dtype
    longer.run();
    CHECK(longer.loop.start() == 1);
    CHECK(longer.loop.json()["updates"] == 5);  // of two steps each, except for the last one
    CHECK(longer.loop.json()["checkpoint"] == "block");
    CHECK(longer.steps.optimizer->loss_scale() == 1024);
  }
  CHECK(resume_refusal(LoopTraining(other.path, with("0.2", "f32", "none")))
            .find("--lr was 0.1 there and is 0.2 now; resume with the earlier") !=
        std::string::npos);
  // Every setting that is on no list counts.
  for (const char* name : {"--new-option", "the data", "--loss-scale", "--overflow"}) {
    const TemporaryFolder own;
    {
      LoopTraining training(own.path, Settings{{name, "this"}});
      CHECK_THROWS_AS(training.run(0), Interrupted);
    }
    CHECK(resume_refusal(LoopTraining(own.path, Settings{{name, ""}}))
              .find(fmt::format("{} was this there and is not given now", name)) !=
          std::string::npos);
    CHECK(resume_refusal(LoopTraining(own.path, Settings{{name, "this"}})) == "accepted");
  }
  // A state of another scaler starts the scaler anew, and one of the same kind continues.
  for (const float scale : {1024.f, 64.f}) {
    const TemporaryFolder own;
    {
      LoopTraining training(own.path);
      training.steps.optimizer->set_scaler(LossScaler::dynamic(1024, 2, 0.5f, 1));
      CHECK_THROWS_AS(training.run(1), Interrupted);
      CHECK(training.steps.optimizer->loss_scale() == 2048);
    }
    LoopTraining again(own.path);
    again.steps.optimizer->set_scaler(LossScaler::dynamic(scale, 2, 0.5f, 1));
    again.loop.resume();
    CHECK(again.steps.optimizer->loss_scale() == (scale == 64 ? 64 : 2048));
  }

  // Positions that another program wrote.
  const auto written = [&](const TrainingPosition& position) {
    const TemporaryFolder other;
    {
      LoopTraining training(other.path);
      SnapshotDirectory(other.path)
          .save({.model = training.steps.model, .optimizer = *training.steps.optimizer}, position);
    }
    return resume_refusal(LoopTraining(other.path));
  };
  const DeviceInfo& device = default_device()->info();
  const nlohmann::json whole = {
      {"settings",
       {{"--lr", "0.001"}, {"the device", fmt::format("{} ({})", device.name, device.driver)}}},
      {"scaler", "none"},
      {"history", nlohmann::json::array()}};
  const std::string good = whole.dump();
  CHECK(written({.step = 4, .epoch = 1, .index = 1, .json = good}) == "accepted");
  for (const TrainingPosition& position :
       {TrainingPosition{.step = 4, .epoch = 1, .index = 2, .json = good},
        TrainingPosition{.step = 4, .epoch = 2, .index = 1, .json = good},
        TrainingPosition{.step = 8, .epoch = 2, .index = 2, .json = good}})
    CHECK(written(position).find("must be in 7 steps") != std::string::npos);
  for (const char* json :
       {"", "{", "[]", "{}", R"({"settings":{}})", R"({"settings":{},"history":3})"})
    CHECK(written({.step = 4, .epoch = 1, .index = 1, .json = json}).find("not of this program") !=
          std::string::npos);
}

TEST_CASE("training loop: its end says which updates were skipped, and fails where all were" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  LoopTraining training("", {{"--lr", "0.001"}}, 6);
  CHECK_THROWS_WITH_AS(conclude_training(*training.steps.optimizer, true),
                       doctest::Contains("it computes nothing"), DeviceError);
  training.steps.optimizer->set_scaler(LossScaler::fixed(3e38f));
  const auto step = [&](int64_t i) {
    training.steps.step({.pixels = some_values(2 * 784, static_cast<int>(i)), .labels = {3, 3}});
    return 2;
  };
  CHECK_THROWS_WITH_AS(
      training.loop.run(step),
      doctest::Contains("[train] at least one update must be made, got none: all 3 "
                        "were skipped because of overflows; nothing is saved."),
      NumericsError);
}

TEST_CASE("training loop: a loss that rises by half over its start ends a run" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  using test::contains;
  CHECK(verdict_of_losses({4, 3, 2, 3, 2, 1}) == "trained");
  CHECK(verdict_of_losses({4, 5, 5.9f, 5.9f, 5.9f, 5.9f}) == "trained");
  CHECK(verdict_of_losses({4, 9, 3, 9, 3, 3}) == "trained");         // batches differ
  CHECK(verdict_of_losses({0.01f, 0.2f, 0.2f, 0.2f}) == "trained");  // a small loss says little
  const std::string ruined = verdict_of_losses({3.74f, 7.85f, 11.28f, 11.45f, 13.86f, 14});
  CHECK(contains(ruined,
                 "[train] the loss must not exceed its initial value of 3.740 by half, got "
                 "11.280 at step 3 of 6"));
  CHECK(contains(ruined,
                 "an earlier model is kept. Lower --lr from 0.001, or continue with "
                 "--allow-rise"));
  CHECK(contains(verdict_of_losses({4, 4, 4, 6.1f}), "at step 4 of 4"));  // no other step comes
  CHECK(verdict_of_losses({3.74f, 7.85f, 11.28f, 11.45f}, true) == "trained");
  // The losses of a few targets say little.
  CHECK(verdict_of_losses({2, 8, 8, 8}, false, 40) == "trained");
  CHECK(contains(verdict_of_losses({2, 2, 8, 8, 8, 8}, false, 100),
                 "value of 2.000 by half, got 8.000"));
  // In a long run it takes more than two steps.
  std::vector<float> losses(200, 1);
  std::fill_n(losses.begin() + 40, 8, 3.0f);
  CHECK(verdict_of_losses(losses) == "trained");
  std::fill(losses.begin() + 40, losses.end(), 1.6f);
  CHECK(contains(verdict_of_losses(losses), "got 1.600 at step 80 of 200"));
  const std::string infinite = verdict_of_losses({4, INFINITY, 4});
  CHECK(contains(infinite,
                 "the loss must be finite, got inf at step 2: relu (op 3) was the first; "
                 "lower --lr"));
}

TEST_CASE("training loop: damage is passed over, but not down to zero unasked" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  for (const int64_t at : {1, 3}) {
    LoopTraining training(folder.path);
    CHECK_THROWS_AS(training.run(at), Interrupted);
  }
  const auto files = SnapshotDirectory(folder.path).list();
  REQUIRE(files.size() == 2);
  const auto damage = [](const fs::path& path) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-5, std::ios::end).put('x').put('y');
  };
  damage(files[1]);
  {
    LoopTraining training(folder.path);
    training.loop.resume();
    CHECK(training.loop.start() == 2);
  }
  damage(files[0]);
  CHECK(resume_refusal(LoopTraining(folder.path)).find("--restart") != std::string::npos);
  LoopTraining again(folder.path, {{"--lr", "0.001"}}, all_steps, true);
  again.run();
  CHECK(again.loop.start() == 0);
  LoopTraining whole("");
  whole.run();
  CHECK(again.values() == whole.values());
}
