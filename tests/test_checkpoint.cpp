// Models in files, and training that goes on bit for bit after a checkpoint, also after SIGKILL.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "data/random.h"
#include "io/checkpoint.h"
#include "io/model.h"
#include "nn/models/resnet.h"
#include "nn/sequential.h"
#include "optim/accumulate.h"
#include "optim/adam.h"
#include "tests/file_fixture.h"
#include "tests/optim_fixture.h"

using namespace rw;
using test::bytes_of;
using test::on_each_device;
using test::some_values;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

ResNetConfig small_resnet(int classes = 5) {
  ResNetConfig config = resnet_imagenet(18, classes);
  config.widths = {4, 8, 8, 8};
  return config;
}

// A small network with everything that a checkpoint must not forget: running statistics, dropout,
// momenta, a loss scale that moves, a schedule, and windows of micro-batches.
class Run {
 public:
  explicit Run(DType dtype)
      : dtype_(dtype),
        seeded_((manual_seed(5), true)),
        optimizer_(Adam(build(model_).parameters(), {.lr = 0.01f}), 2) {
    optimizer_.set_schedule(Schedule::cosine(12, 3));
    if (dtype == DType::f16) optimizer_.set_scaler(LossScaler::dynamic(0x1p30f, 2, 0.5f, 3));
  }

  float step() {
    const auto seed = static_cast<int>(position.epoch * 100 + position.index);
    const Tensor x = tensor(some_values(4 * 6 * 6 * 3, seed), {4, 6, 6, 3}, dtype_);
    const std::vector<int32_t> labels = {seed % 3, (seed + 1) % 3, 2, 0};
    Tensor loss;
    {
      const Autocast autocast(dtype_, dtype_ == DType::f16);
      loss = cross_entropy(model_(x), tensor(labels, {4}));
    }
    optimizer_.backward(loss);
    optimizer_.step();
    ++position.step;
    if (++position.index == 5) position.index = 0, ++position.epoch;
    return loss.item();
  }

  TrainingState state() { return {.model = model_, .optimizer = optimizer_}; }
  // Every bit that training left, with the names.
  std::vector<std::pair<std::string, std::vector<uint32_t>>> bits() {
    std::vector<std::pair<std::string, std::vector<uint32_t>>> all;
    const auto add = [&](const std::string& name, const Tensor& t) {
      const std::vector<float> values = t.to_vector();
      all.emplace_back(name, std::vector<uint32_t>(values.size()));
      std::memcpy(all.back().second.data(), values.data(), values.size() * sizeof(float));
    };
    for (const auto& [name, t] : state_dict(model_)) add(name, t);
    for (const auto& [name, t] : optimizer_.state()) add(name, t);
    return all;
  }
  uint64_t skipped() const { return optimizer_.skipped(); }

  TrainingPosition position;

 private:
  static Sequential& build(Sequential& model) {
    model.emplace<Conv2d>(3, 8, 3, ConvOptions{.padding = 1, .bias = false});
    model.emplace<BatchNorm2d>(8);
    model.emplace<ReLU>();
    model.emplace<Dropout>(0.3f);
    model.emplace<GlobalAvgPool>();
    model.emplace<Linear>(8, 3);
    return model;
  }

  DType dtype_;
  bool seeded_;
  Sequential model_;
  Accumulate optimizer_;
};

constexpr int64_t total_steps = 24;

// Trains to the end, going on from the newest checkpoint, with one after each update.
void train_with_checkpoints(const fs::path& folder) {
  Run run(DType::f32);
  const CheckpointDirectory checkpoints(folder, 2);
  if (const auto position = checkpoints.load_latest(run.state())) run.position = *position;
  while (run.position.step < total_steps) {
    run.step();
    if (run.position.step % 2 == 0) checkpoints.save(run.state(), run.position);
  }
}

constexpr const char* folder_variable = "REWIND_TEST_CHECKPOINTS";
constexpr const char* device_variable = "REWIND_TEST_DEVICE";

// This program again, running only the test case below.
pid_t start_training(const fs::path& folder, const std::string& device) {
  const std::string self = fs::read_symlink("/proc/self/exe");
  setenv(folder_variable, folder.c_str(), 1);
  setenv(device_variable, device.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    execl(self.c_str(), self.c_str(), "--test-case=checkpoint: child process", "--no-skip",
          "--minimal", nullptr);
    _exit(127);
  }
  unsetenv(folder_variable);
  unsetenv(device_variable);
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Leaves the ended process for wait_for.
bool is_running(pid_t child) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

}  // namespace

TEST_CASE("checkpoint: child process" * doctest::skip()) {
  const char* folder = std::getenv(folder_variable);
  if (folder == nullptr) return;  // only start_training() runs this
  set_default_device(open_backend(std::getenv(device_variable)));
  train_with_checkpoints(folder);
}

TEST_CASE("checkpoint: training goes on bit for bit in a new model") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16}) {
      CAPTURE(name(dtype));
      const TemporaryFolder folder;
      const fs::path path = folder.path / "half";
      std::vector<float> losses;
      Run whole(dtype);
      for (int i = 0; i < total_steps; ++i) losses.push_back(whole.step());

      {
        Run first(dtype);
        for (int i = 0; i < total_steps / 2; ++i) first.step();
        first.position.json = R"({"note": "half way"})";
        save_checkpoint(path, first.state(), first.position);
      }
      Run second(dtype);
      second.step();  // whatever it was before does not matter
      second.step();
      second.position = load_checkpoint(path, second.state());
      CHECK(second.position.step == total_steps / 2);
      CHECK(second.position.json == R"({"note": "half way"})");
      std::vector<float> resumed;
      for (int i = 0; i < total_steps / 2; ++i) resumed.push_back(second.step());
      CHECK(resumed == std::vector<float>(losses.begin() + total_steps / 2, losses.end()));
      CHECK(second.bits() == whole.bits());
      if (dtype == DType::f16) CHECK(whole.skipped() > 0);  // the loss scale moved
    }
  });
}

TEST_CASE("checkpoint: killed at any moment, training ends with the same bits") {
  on_each_device([] {
    const std::string device = default_device()->info().backend;
    const TemporaryFolder folder;
    REQUIRE(wait_for(start_training(folder.path / "whole", device)) == 0);

    DataRandom random(3);
    const int attempts = device == "cpu" ? 6 : 2;  // drivers take a while to start
    const CheckpointDirectory killed(folder.path / "killed");
    int kills = 0;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      const auto before = killed.list();
      const pid_t child = start_training(folder.path / "killed", device);
      // Until it has come a little further, then up to two steps more.
      for (int i = 0; i < 2000 && is_running(child) && killed.list() == before; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(8000)));
      kill(child, SIGKILL);  // at worst it has ended, but its number is still taken
      if (WIFSIGNALED(wait_for(child))) ++kills;
      for (const auto& entry : fs::directory_iterator(folder.path / "killed"))
        if (!AtomicFile::is_temporary(entry.path())) CHECK_NOTHROW(SafetensorsFile(entry.path()));
    }
    CHECK(kills > 0);
    REQUIRE(wait_for(start_training(folder.path / "killed", device)) == 0);
    const auto last = fmt::format("step-{:012}.safetensors", total_steps);
    CHECK(bytes_of(folder.path / "killed" / last) == bytes_of(folder.path / "whole" / last));
    // The newest two are kept, and nothing else.
    CHECK(std::distance(fs::directory_iterator(folder.path / "killed"), {}) == 2);
  });
}

TEST_CASE("checkpoint: only complete files count") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const CheckpointDirectory checkpoints(folder.path, 3);
  Run run(DType::f32);
  CHECK_FALSE(checkpoints.load_latest(run.state()).has_value());
  CHECK_FALSE(CheckpointDirectory(folder.path / "none").load_latest(run.state()).has_value());
  for (int i = 0; i < 10; ++i) {
    run.step();
    if (i % 2 == 1) checkpoints.save(run.state(), run.position);
  }
  REQUIRE(checkpoints.list().size() == 3);
  CHECK(checkpoints.list().back().filename() == "step-000000000010.safetensors");
  fs::resize_file(checkpoints.list().back(), 5000);  // a damaged disk
  const auto position = checkpoints.load_latest(run.state());
  REQUIRE(position.has_value());
  CHECK(position->step == 8);
  run.position = *position;

  // What a killed writer left goes with the next save; other files stay.
  std::ofstream(folder.path / "step-000000000012.safetensors.partial-aB3dE6") << "half";
  std::ofstream(folder.path / "notes.txt") << "mine";
  checkpoints.save(run.state(), run.position);
  CHECK_FALSE(fs::exists(folder.path / "step-000000000012.safetensors.partial-aB3dE6"));
  CHECK(fs::exists(folder.path / "notes.txt"));

  run.step();
  CHECK_THROWS_AS(checkpoints.save(run.state(), run.position), AutogradError);  // inside a window
  CHECK_THROWS_AS(CheckpointDirectory(folder.path, 0), ValueError);
}

TEST_CASE("checkpoint: files that do not fit are refused before anything is changed") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  Run run(DType::f32);
  run.step();
  run.step();
  const auto before = run.bits();
  Sequential other;
  other.emplace<Linear>(2, 2);
  Adam adam(other.parameters());
  save_checkpoint(folder.path / "other", {.model = other, .optimizer = adam}, {});
  CHECK_THROWS_WITH_AS(load_checkpoint(folder.path / "other", run.state()),
                       doctest::Contains("missing: model.1.weight"), FileError);
  save_model(folder.path / "model", other);
  CHECK_THROWS_WITH_AS(load_checkpoint(folder.path / "model", run.state()),
                       doctest::Contains("must be a training checkpoint"), FileError);
  CHECK(run.bits() == before);
}

TEST_CASE("model files: torchvision's layout, f16, missing and unexpected names") {
  on_each_device([] {
    const TemporaryFolder folder;
    const fs::path path = folder.path / "m.safetensors";
    manual_seed(1);
    ResNet saved(small_resnet());
    const Tensor x = tensor(some_values(2 * 32 * 32 * 3), {2, 32, 32, 3});
    saved(x);  // moves the running statistics
    save_model(path, saved, {{"note", "test"}});
    {
      const SafetensorsFile file(path);
      CHECK(file.metadata() == Metadata{{"format", "pt"}, {"note", "test"}});
      CHECK(file.tensors().at("conv1.weight").shape == Shape{4, 3, 7, 7});  // OIHW
      Tensor conv = empty({4, 3, 7, 7}, DType::f32);
      file.read("conv1.weight", conv);
      const auto ours = saved.named_parameters()[0].tensor;
      CHECK(conv.to_vector() == permute(ours, {0, 3, 1, 2}).to_vector());
    }
    ResNet loaded(small_resnet());
    CHECK(load_model(path, loaded).missing.empty());
    saved.eval();
    loaded.eval();
    const NoGrad guard;
    CHECK(loaded(x).to_vector() == saved(x).to_vector());

    const uint64_t f32_size = fs::file_size(path);
    save_model(path, saved, {}, DType::f16);
    CHECK(fs::file_size(path) + static_cast<uint64_t>(saved.parameter_count()) * 2 < f32_size);
    load_model(path, loaded);
    for (size_t i = 0; i < saved.parameters().size(); ++i)
      CHECK(loaded.parameters()[i].to_vector() ==
            cast(cast(saved.parameters()[i], DType::f16), DType::f32).to_vector());

    ResNet more_classes(small_resnet(7));
    CHECK_THROWS_WITH_AS(load_model(path, more_classes),
                         doctest::Contains("other shapes: fc.weight is (5, 8), not (7, 8)"),
                         FileError);
    StateDict some = torch_state_dict(loaded);
    some.resize(some.size() - 1);
    some.push_back({"head.bias", zeros({5})});
    some.push_back({"bn1.num_batches_tracked", zeros({})});
    write_safetensors(path, some);
    CHECK_THROWS_WITH_AS(load_model(path, loaded), doctest::Contains("; unexpected: head.bias"),
                         FileError);
    const LoadResult result = load_model(path, loaded, false);
    CHECK(result.missing == std::vector<std::string>{"layer4.1.bn2.running_var"});
    CHECK(result.unexpected == std::vector<std::string>{"head.bias"});
  });
}

TEST_CASE("model files: renamed tensors of foreign formats") {
  set_default_device(open_backend("cpu"));
  const StateDict tensors = {{"encoder.0.norm.weight", zeros({1})},
                             {"encoder.0.norm.bias", zeros({1})}};
  const StateDict foreign = renamed(
      tensors, {{"encoder.", "layer."}, {"norm.weight", "norm.gamma"}, {"norm.bias", "norm.beta"}});
  CHECK(foreign[0].name == "layer.0.norm.gamma");
  CHECK(foreign[1].name == "layer.0.norm.beta");
}
