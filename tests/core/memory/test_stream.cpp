// Streams of frozen weights: the bits of weights that stay, memory, the order in which they come,
// and files that change.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "core/memory/local_sources.h"
#include "core/memory/stream.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int64_t width = 64;
constexpr uint64_t weight_bytes = width * width * sizeof(float);

// Six layers, of which the weights are frozen and the biases are trained.
struct FrozenNet {
  Sequential model;
  std::vector<std::shared_ptr<Storage>> weights;

  FrozenNet() {
    manual_seed(3);
    for (int i = 0; i < 6; ++i) {
      auto& layer = model.emplace<Linear>(width, width);
      layer.weight.set_requires_grad(false);
      weights.push_back(layer.weight.impl().storage);
    }
  }

  std::vector<std::vector<float>> step(bool replays) {
    Tensor y;
    {
      const CheckpointScope segment(replays);
      y = sum(model(full({4, width}, 0.5f)));
    }
    y.backward();
    std::vector<std::vector<float>> found = {y.to_vector()};
    for (Tensor p : model.parameters())
      if (p.requires_grad()) found.push_back(p.grad().to_vector()), p.set_grad({});
    return found;
  }
};

// Notes what a stream asks of it.
class Witness : public HostSource {
 public:
  Witness(const std::vector<std::shared_ptr<Storage>>& storages, bool fills_ahead)
      : HostSource(storages), fills_ahead_(fills_ahead) {}
  bool fills_ahead() const override { return fills_ahead_; }
  std::vector<std::string> take() { return std::exchange(seen_, {}); }
  void expect(size_t i) override { seen_.push_back("expect " + std::to_string(i)); }
  void fill(size_t i, Storage& target) override {
    seen_.push_back("fill " + std::to_string(i));
    HostSource::fill(i, target);
  }
  void before_leaving(size_t i) override {
    seen_.push_back("leave " + std::to_string(i));
    HostSource::before_leaving(i);
  }

 private:
  bool fills_ahead_;
  std::vector<std::string> seen_;
};

using Words = std::vector<std::string>;

// All weights, one after the other.
void write_weights(const std::filesystem::path& path, const FrozenNet& net) {
  std::ofstream file(path, std::ios::binary);
  for (const auto& storage : net.weights) {
    std::vector<char> bytes(storage->bytes());
    storage->device().read(*storage, 0, storage->bytes(), bytes.data());
    file.write(bytes.data(), std::ssize(bytes));
  }
}

// Where they are in such a file.
std::vector<FileContents> contents_of(const std::filesystem::path& path) {
  std::vector<FileContents> found;
  for (uint64_t i = 0; i < 6; ++i) found.push_back({path, {{i * weight_bytes, 0, weight_bytes}}});
  return found;
}

void check_steps(FrozenNet& net, StreamSource& source, const StreamOptions& options,
                 const std::vector<std::vector<float>>& plain, uint64_t most_live) {
  Device& device = net.weights.front()->device();
  Stream stream(net.weights, source, options);
  CHECK(std::ranges::all_of(net.weights, &Storage::is_swapped_out));
  for (const bool replays : {false, true, false}) {
    CAPTURE(replays);
    device.take_high_water();
    CHECK(net.step(replays) == plain);
    CHECK(device.take_high_water() <= most_live);
    stream.end_window();
  }
  stream.gather();
  CHECK(std::ranges::none_of(net.weights, &Storage::is_swapped_out));
  CHECK(net.step(false) == plain);
  stream.release();
  CHECK(std::ranges::all_of(net.weights, &Storage::is_swapped_out));
  stream.gather();  // for the next case
}

}  // namespace

TEST_CASE("streams: frozen weights in host memory or in a file have the bits of those that stay") {
  on_each_device([] {
    FrozenNet net;
    const auto plain = net.step(false);
    Device& device = net.weights.front()->device();
    device.take_high_water();
    net.step(true);
    const uint64_t all = device.take_high_water();
    const TemporaryFolder folder;
    write_weights(folder.path / "weights", net);
    for (const uint64_t slots : {0, 2, 6})
      for (const bool ahead : {false, true}) {
        CAPTURE(slots);
        CAPTURE(ahead);
        const uint64_t gone = (6 - std::max<uint64_t>(slots, 1)) * weight_bytes;
        const StreamOptions options{.most_bytes = slots * weight_bytes, .ahead = ahead};
        {
          HostSource host(net.weights);
          check_steps(net, host, options, plain, all - gone + weight_bytes);
        }
        FileSource file(net.weights, contents_of(folder.path / "weights"));
        check_steps(net, file, options, plain, all - gone + weight_bytes);
      }
  });
}

TEST_CASE_FIXTURE(CpuDevice, "streams: the order of the last window is expected of the next") {
  FrozenNet net;
  Witness source(net.weights, false);
  Stream stream(net.weights, source, {.most_bytes = 2 * weight_bytes});
  const auto use = [&](std::vector<size_t> numbers) {
    for (const size_t i : numbers) {
      Storage* one[] = {net.weights[i].get()};
      stream.need(one);
    }
  };
  CHECK(source.take() == Words{"leave 0", "leave 1", "leave 2", "leave 3", "leave 4", "leave 5"});
  use({0, 1, 1, 2, 1, 3});
  // 2 sends 0 away, which was not used for longest; 3 sends 2.
  CHECK(source.take() == Words{"expect 0", "fill 0", "expect 1", "fill 1", "leave 0", "expect 2",
                               "fill 2", "leave 2", "expect 3", "fill 3"});
  stream.end_window();
  CHECK(source.take() == Words{"leave 1", "leave 3"});
  use({0, 1});
  CHECK(source.take() == Words{"expect 0", "expect 1", "fill 0", "expect 1", "expect 2", "fill 1"});
  use({5, 2});  // another order: nothing is expected any more
  CHECK(source.take() == Words{"leave 0", "expect 5", "fill 5", "leave 1", "expect 2", "fill 2"});
  stream.end_window();
  source.take();
  use({0, 1, 5});
  CHECK(source.take() == Words{"expect 0", "expect 1", "fill 0", "expect 1", "expect 5", "fill 1",
                               "leave 0", "expect 5", "expect 2", "fill 5"});
  // One kernel has all that it reads at once, whatever the bound is.
  Storage* three[] = {net.weights[0].get(), net.weights[3].get(), net.weights[4].get()};
  stream.need(three);
  for (const Storage* storage : three) CHECK(!storage->is_swapped_out());
}

TEST_CASE_FIXTURE(CpuDevice, "streams: what comes at once is there before it is asked for") {
  FrozenNet net;
  Witness source(net.weights, true);
  Stream stream(net.weights, source, {.most_bytes = 2 * weight_bytes});
  source.take();
  const auto use = [&](size_t i) {
    Storage* one[] = {net.weights[i].get()};
    stream.need(one);
    Words seen = source.take();
    std::erase_if(seen, [](const std::string& word) { return word.starts_with("expect"); });
    return seen;
  };
  for (const size_t i : {0, 1, 2, 1}) use(i);
  stream.end_window();
  source.take();
  CHECK(use(0) == Words{"fill 0", "fill 1"});
  CHECK(use(0).empty());
  CHECK(use(1) == Words{"leave 0", "fill 2"});
  CHECK(use(2).empty());
  CHECK(use(1).empty());
  stream.end_window();
  // One that was there, and nobody used, was not wanted: the next window expects nothing after it.
  source.take();
  use(0);
  CHECK(use(3) == Words{"leave 1", "fill 3"});
  stream.end_window();
  source.take();
  CHECK(use(0) == Words{"fill 0", "fill 3"});
}

TEST_CASE_FIXTURE(CpuDevice,
                  "streams: what was written goes back to host memory, and nothing else") {
  FrozenNet net;
  Device& device = *default_device();
  HostSource source(net.weights);
  Stream stream(net.weights, source, {.most_bytes = 2 * weight_bytes, .ahead = false});
  const auto copied = [&] {
    const uint64_t sum = offloaded_bytes(device.work());
    device.reset_peak();
    return sum / weight_bytes;
  };
  CHECK(copied() == 6);
  const NoGrad guard;
  net.model(full({4, width}, 0.5f));
  CHECK(copied() == 6);  // they came
  stream.end_window();
  CHECK(copied() == 0);
  auto& first = dynamic_cast<Linear&>(net.model[0]);
  fill_(first.weight, 3);
  CHECK(copied() == 1);
  stream.end_window();
  CHECK(copied() == 1);
  CHECK(first.weight.to_vector() == std::vector<float>(width * width, 3.0f));  // where it lies
  first.weight.copy_from(std::vector<float>(width * width, 4.0f));
  CHECK(copied() == 0);
  CHECK(sum(first.weight).item() == 4.0f * width * width);
}

TEST_CASE_FIXTURE(CpuDevice, "streams: files that are too short, or become so") {
  FrozenNet net;
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "weights";
  write_weights(path, net);
  std::vector<FileContents> late = contents_of(path), few = contents_of(path);
  late.back().runs[0].offset += 4;
  CHECK(contains(message_of<FileError>([&] { FileSource(net.weights, late); }),
                 "must have 16384 bytes from 81924 on, got 98304 in all"));
  few.back().runs[0].bytes -= 4;
  CHECK(contains(message_of<ValueError>([&] { FileSource(net.weights, few); }),
                 "must be the 16384 bytes of a storage, got 16380"));
  FileSource source(net.weights, contents_of(path));
  Stream stream(net.weights, source, {});
  const NoGrad guard;
  const auto run = [&] { net.model(full({4, width}, 0.5f)); };
  run();
  CHECK(source.bytes_read() == 6 * weight_bytes);
  const auto before = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
  CHECK(contains(message_of<FileError>(run), "that was changed"));
  std::filesystem::resize_file(path, 5 * weight_bytes);
  std::filesystem::last_write_time(path, before);
  CHECK(contains(message_of<FileError>(run), "weights"));
  std::filesystem::remove(path);
  CHECK(contains(message_of<FileError>(run), "that was removed"));
}

TEST_CASE_FIXTURE(CpuDevice, "streams: what is scattered in a file comes together in the weight") {
  FrozenNet net;
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "weights";
  const auto plain = net.step(false);
  // Rows 1, 0, 3, 2, ... of each weight, whose second half comes before its first one.
  constexpr uint64_t row = width * sizeof(float);
  std::vector<FileContents> contents;
  std::ofstream file(path, std::ios::binary);
  for (uint64_t i = 0; i < 6; ++i) {
    std::vector<char> bytes(weight_bytes);
    net.weights[i]->device().read(*net.weights[i], 0, weight_bytes, bytes.data());
    auto& [its_path, runs] = contents.emplace_back();
    its_path = path;
    for (uint64_t k = 0; k < width; ++k) {
      const uint64_t from = ((k + width / 2) % width) ^ 1;
      runs.push_back({i * weight_bytes + k * row, from * row, row});
      file.write(bytes.data() + from * row, row);
    }
    std::swap(runs.front(), runs[3]);  // runs come in any order
  }
  file.close();
  FileSource source(net.weights, contents);
  CHECK(source.buffer_bytes() == 2 * weight_bytes);
  Stream stream(net.weights, source, {});
  CHECK(net.step(true) == plain);
  // Nobody notices a write to what comes from the file again, so it is refused.
  stream.gather();
  net.weights[2]->device().write(*net.weights[2], 0, 4, "abc");
  CHECK(contains(message_of<ValueError>([&] { stream.release(); }), "must not be written to"));
}

TEST_CASE("streams: a dry run has the peak of the real one") {
  const auto peak = [](std::unique_ptr<Backend> backend) {
    const auto device = set_default_device(std::move(backend));
    FrozenNet net;
    HostSource source(net.weights);
    Stream stream(net.weights, source, {.most_bytes = 2 * weight_bytes});
    device->reset_peak();
    for (int i = 0; i < 2; ++i) {
      sum(net.model(full({4, width}, 0.5f))).backward();
      stream.end_window();
      device->end_step();
    }
    return device->memory_report().peak;
  };
  CHECK(peak(open_backend("reference")) == peak(endless_dry(*open_backend("reference"))));
}
