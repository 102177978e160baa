// Plans by time: ops are measured once, their times are kept, and a search minimises them.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "backends/open.h"
#include "core/memory/default_device.h"
#include "ops/ops.h"
#include "planner/graph/evaluate.h"
#include "planner/search/search.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

// Computes y = tanh(y W) + y six times, with a view on the way.
void tanh_step() {
  manual_seed(1);
  const Tensor w = rand({32, 32}, -0.1f, 0.1f).set_requires_grad();
  Tensor y = rand({64, 32});
  for (int i = 0; i < 6; ++i) y = add(tanh(matmul(y, w)), y);
  sum(reshape(y, {-1})).backward();
}

std::unique_ptr<Backend> open_dry() {
  return open_backend("dry:reference");
}

struct CacheFile {
  std::filesystem::path path;
  std::vector<std::string> lines;

  explicit CacheFile(const std::filesystem::path& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename().string().starts_with("op-times-")) path = entry.path();
    REQUIRE(!path.empty());
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  // Writes other times: `slow` ops take a second, the others a microsecond.
  void write(const std::string& slow) const {
    std::ofstream file(path);
    for (const std::string& line : lines) {
      const std::string key = line.substr(line.find(' '));
      file << (key.starts_with(" " + slow + " ") ? "1" : "0.000001") << key << '\n';
    }
  }
};

// A device and a cache that has the times of the ops of tanh_step() on it.
struct MeasuredDevice {
  const TemporaryFolder folder;
  const Env cache{"REWIND_CACHE", folder.path};
  const std::shared_ptr<Device> device = Device::create(open_backend("reference"));
  const Graph graph = search().graph();
  const CacheFile file{folder.path};

  Search search() const {
    return {open_dry, tanh_step, {.times = std::make_shared<OpTimes>(device)}};
  }
  uint64_t dispatches() const { return device->backend().stats().dispatches; }
};

}  // namespace

TEST_CASE("op times: each op is measured once and kept for later processes" *
          doctest::test_suite("host")) {
  const MeasuredDevice measured;
  size_t views = 0;
  for (const Graph::Record& record : measured.graph.records) {
    INFO(record.op);
    REQUIRE(record.seconds.has_value() == !record.inputs.empty());
    if (!record.seconds) continue;
    views += *record.seconds == 0;
    CHECK((*record.seconds > 0) == (record.work.bytes > 0));
  }
  CHECK(views == 1);
  CHECK(measured.device->live() == 0);
  CHECK(measured.file.lines.size() == 4);  // matmul, tanh, add, sum

  const uint64_t before = measured.dispatches();
  CHECK(before > 0);
  const Search again = measured.search();
  CHECK(measured.dispatches() == before);
  for (size_t i = 0; i < measured.graph.records.size(); ++i)
    if (const auto& seconds = measured.graph.records[i].seconds)
      CHECK(*again.graph().records[i].seconds == doctest::Approx(*seconds).epsilon(1e-3));
}

TEST_CASE("op times: plans make again what is quick on the device, whatever its FLOPs" *
          doctest::test_suite("host")) {
  const MeasuredDevice measured;
  const auto replayed = [&](const char* slow) {
    measured.file.write(slow);
    Search search = measured.search();
    const uint64_t plain = search.plain().peak(), least = search.candidates().back().peak();
    REQUIRE(least < plain);
    const Candidate choice = search.budget((2 * plain + least) / 3);
    CHECK(choice.cost > 0);
    return choice.replay();
  };
  CHECK(replayed("matmul").flops == 0);
  CHECK(replayed("add").flops > 0);
}

TEST_CASE("op times: plans by time take no more of it than plans by FLOPs" *
          doctest::test_suite("host")) {
  const MeasuredDevice measured;
  for (const char* slow : {"matmul", "tanh", "add"}) {
    measured.file.write(slow);
    Search by_time = measured.search(), by_work(open_dry, tanh_step);
    const uint64_t plain = by_work.plain().peak(), least = by_work.candidates().back().peak();
    for (uint64_t k = 0; k <= 12; ++k) {
      const uint64_t bytes = least + (plain - least) * k / 12;
      CAPTURE(slow);
      CAPTURE(bytes);
      const Plan plan = by_work.budget(bytes).plan;
      CHECK(by_time.budget(bytes).cost <= evaluate(by_time.graph(), plan).cost);
    }
  }
}

TEST_CASE("op times: a dry device has none" * doctest::test_suite("host")) {
  CHECK_THROWS_WITH_AS(OpTimes(Device::create(open_dry())),
                       doctest::Contains("must be of a device that computes"), ValueError);
}

}  // namespace rw::test
