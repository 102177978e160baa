// The ways of a program with frozen weights: on the device, in host memory, in their file.
#include <fstream>

#include "dist/step_ranks.h"
#include "nn/adapters/frozen_weights.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/adam.h"
#include "planner/choices/choice_text.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int64_t columns = 256;
constexpr uint64_t layer_bytes = columns * columns * sizeof(float);

// Eight layers, of which only the biases are trained.
class FrozenSteps : public TrainingSteps {
 public:
  explicit FrozenSteps(const StepSettings& settings) : settings_(settings), ranks_(settings) {
    std::vector<WeightInFile> in_file;
    {
      const init::HostParameters there(settings.offload == "parameters");
      for (int i = 0; i < 8; ++i) {
        Tensor weight = net_.emplace<Linear>(columns, columns).weight;
        weight.set_requires_grad(false);
        if (settings.offload != "file") continue;
        weight.device().swap_out(*weight.impl().storage);
        in_file.push_back({weight, {"", {{0, 0, layer_bytes}}}});
      }
    }
    if (settings.offload == "parameters") frozen_.emplace(net_, 2 * layer_bytes);
    if (settings.offload == "file") frozen_.emplace(in_file, 2 * layer_bytes);
    optimizer_ = ranks_.wrap(AdamW(ranks_.placed(net_.parameters())));
  }
  void dry_step(const BatchShape&) override {
    if (frozen_) frozen_->begin_step();
    optimizer_->backward(mean(square(net_(empty({settings_.batch, columns})))));
    optimizer_->step();
    optimizer_->zero_grad();
    default_device()->end_step();
  }
  FileReads file_reads() const override {
    const FileSource* file = frozen_ ? frozen_->file() : nullptr;
    return file ? FileReads{file->bytes_read(), file->buffer_bytes()} : FileReads{};
  }

 private:
  const StepSettings settings_;
  const StepRanks ranks_;
  Sequential net_;
  std::optional<FrozenWeights> frozen_;
  std::unique_ptr<Optimizer> optimizer_;
};

TrainingProgram with_frozen(std::optional<std::string> file) {
  return {.make = [](const StepSettings& s) { return std::make_unique<FrozenSteps>(s); },
          .settings = {.batch = 64},
          .frozen_file = std::move(file)};
}

}  // namespace

TEST_CASE("choices: frozen weights stay in their file where the host has no room for them" *
          doctest::test_suite("host")) {
  const auto cpu = open_backend("cpu");
  DeviceInfo info = cpu->info();
  info.host_bandwidth = {25e9, 25e9};
  const auto discrete = cpu->dry(info);
  const Planner planner(with_frozen(""), *discrete);
  const uint64_t plain = planner.peak(planner.settings());
  const auto choice = [&](const Planner& of, uint64_t host, std::vector<std::string> fixed = {}) {
    return Choices(of, of.settings(),
                   {.bytes = plain - 4 * layer_bytes, .host_bytes = host, .fixed = fixed})
        .quickest();
  };
  const std::optional<Choice> on_host = choice(planner, 16 * layer_bytes);
  REQUIRE(on_host);
  CHECK(on_host->settings.offload == "parameters");
  CHECK(on_host->forecast.from_files == 0);
  const std::optional<Choice> in_file = choice(planner, 4 * layer_bytes);
  REQUIRE(in_file);
  CHECK(in_file->settings.offload == "file");
  CHECK(contains(in_file->options, "offload file"));
  CHECK(in_file->forecast.memory.host_peak == 2 * layer_bytes);  // two are on their way
  CHECK(in_file->seconds > on_host->seconds);
  // Forward reads each layer, and so does backward, but for the last two, which are still there,
  // and the first one, whose input needs no gradient. The steps of an update read alike.
  const uint64_t steps = in_file->settings.accumulate;
  CHECK(in_file->forecast.from_files == steps * 13 * layer_bytes);
  CHECK(planner.forecast(in_file->settings).from_files == in_file->forecast.from_files);
  CHECK(planner.forecast(in_file->settings).memory.host_peak == in_file->forecast.memory.host_peak);
  CHECK(!choice(planner, layer_bytes));
  CHECK(!choice(planner, 4 * layer_bytes, {"offload"}));
  // Without a file, or one that may be left so, there is no such way; without a bus there is.
  CHECK(!choice(Planner(with_frozen({}), *discrete), 4 * layer_bytes));
  info.host_bandwidth = {};
  const auto shared = cpu->dry(info);
  const auto alone = choice(Planner(with_frozen("weights.gguf"), *shared), 4 * layer_bytes);
  REQUIRE(alone);
  CHECK(alone->settings.offload == "file");
}

TEST_CASE("step time: reads of files hide behind kernels, or kernels behind them") {
  const DeviceSpeed speed{.flops = 100, .bytes = 10, .kernel = 1, .host = {2, 6}, .file = 0.5};
  WorkByPhase work{};
  work[static_cast<int>(Phase::forward)] = {.flops = 500, .offloaded = 8};
  CHECK(speed.seconds(work, 2) == doctest::Approx(5));
  CHECK(speed.seconds(work, 10) == doctest::Approx(20));  // 10 / 0.5
  DeviceSpeed quick = speed;
  quick.file = 1e9;
  CHECK(quick.seconds(work, 40) == doctest::Approx(12));  // over the bus, as others
}

TEST_CASE("step time: the speed of a file is measured" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  std::ofstream(folder / "weights") << std::string(3 << 20, 'x');
  CHECK(measure_file_speed(folder / "weights") > 1e6);
  CHECK(measure_file_speed(folder.path) > 1e6);
  std::ofstream(folder / "empty") << "";
  CHECK(measure_file_speed(folder / "empty") >= 0);
  CHECK_THROWS_AS(measure_file_speed(folder / "none"), FileError);
}
