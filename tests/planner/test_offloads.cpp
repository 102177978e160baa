// Values that plans keep in host memory: the planner's choice between them and recomputation, and
// passes that follow such plans with the bits of the plain run and the bytes of the forecast.
#include <cmath>

#include "planner/auto_recompute.h"
#include "planner/follow/memory_budget.h"
#include "planner/graph/evaluate.h"
#include "planner/search/plans.h"
#include "planner/search/search.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/guard_backend.h"
#include "tests/fixtures/recompute_graphs.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

Graph with_offloads(Graph graph, double cost_per_byte) {
  graph.offload_cost = cost_per_byte;
  return graph;
}

// Pairs of records of 10 bytes each, of which the second is dear to recompute.
Graph dear_and_cheap(uint32_t pairs) {
  GraphBuilder b;
  uint32_t x = b.external(10);
  for (uint32_t i = 0; i < pairs; ++i) {
    x = b.add({x}, 10, {.saves_output = true, .cost = 1});
    x = b.add({x}, 10, {.saves_output = true, .cost = 100});
  }
  return std::move(b.graph);
}

// The reference device as if it had memory of its own, with copies to the host's that take so long.
class Discrete : public GuardBackend {
 public:
  explicit Discrete(HostBandwidth bandwidth, uint64_t host_bytes = UINT64_MAX)
      : GuardBackend(open_backend("reference"), false),
        info_(GuardBackend::info()),
        host_bytes_(host_bytes) {
    info_.host_bandwidth = bandwidth;
  }
  const DeviceInfo& info() const override { return info_; }
  uint32_t allocate_host_block(uint64_t bytes) override {
    check<OutOfMemory>(bytes <= host_bytes_, "discrete", "the host has {} bytes", host_bytes_);
    host_bytes_ -= bytes;
    return allocate_block(bytes);
  }
  using Backend::dry;
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return open_backend("dry:reference")->dry(limits);
  }

 private:
  DeviceInfo info_;
  uint64_t host_bytes_;
};

constexpr HostBandwidth quick{1e18, 1e18}, slow{1e6, 1e6};

// Two steps of a chain of layers with a matrix product each; returns losses and gradients.
std::vector<std::vector<float>> train_chain(int layers = 16) {
  manual_seed(1);
  std::vector<Tensor> weights;
  for (int i = 0; i < layers; ++i) weights.push_back(randn({16, 16}).set_requires_grad());
  const Tensor x = randn({64, 16});
  std::vector<std::vector<float>> results;
  for (int step = 0; step < 2; ++step) {
    Tensor y = x;
    for (const Tensor& w : weights) y = add(gelu(matmul(y, w)), y);
    const Tensor loss = mean(square(std::move(y)));
    loss.backward();
    results.push_back(loss.to_vector());
    for (Tensor& w : weights) {
      results.push_back(w.grad().to_vector());
      w.set_grad({});
    }
    default_device()->end_step();
  }
  return results;
}

Search search_offloads(HostBandwidth bandwidth, AutoRecomputeOptions options = {}) {
  options.candidates = 12;
  return Search([=] { return Discrete(bandwidth).dry(); }, [] { train_chain(); }, options);
}

// Follows each candidate on a device of `open`: the bits of the plain run, and the bytes of both
// memories as they were predicted. Returns how many have offloads.
size_t check_runs(Search& search, const std::function<std::unique_ptr<Backend>()>& open) {
  set_default_device(open());
  const auto plain = train_chain();
  size_t offloading = 0;
  for (const Candidate& choice : search.candidates()) {
    const auto device = set_default_device(open());
    const PlanFollower scope(choice.plan);
    REQUIRE(train_chain() == plain);
    const MemoryReport report = device->memory_report();
    CHECK(report.peak == choice.peak());
    CHECK(report.host_peak == choice.forecast.memory.host_peak);
    CHECK(report.host_live == 0);
    CHECK(offloaded_bytes(device->work()) == offloaded_bytes(choice.forecast.work));
    CHECK((report.host_peak > 0) == !choice.plan.offloads.empty());
    offloading += !choice.plan.offloads.empty();
  }
  return offloading;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("offloads: simulation of a chain of outputs") {
  const Graph graph = with_offloads(uniform_chain(6, 10), 0.5);
  // Value 0 is away from the time when record 1 has read it to its vjp.
  const PlanCost one = evaluate(graph, {.offloads = {{0, 0, 1}}});
  CHECK(one.held == 50);
  CHECK(one.peak == 70);
  CHECK(one.offloaded == 10);
  CHECK(one.cost == 5);
  CHECK(one.replayed == 0);
  // A vjp has its value and two gradients; forward has what a record reads and makes.
  const PlanCost all = evaluate(
      graph, {.offloads = {{0, 0, 1}, {1, 0, 2}, {2, 0, 3}, {3, 0, 4}, {4, 0, 5}, {5, 0, 5}}});
  CHECK(all.held == 0);
  CHECK(all.peak == 30);
  CHECK(all.offloaded == 60);
  // Nobody holds what a segment drops. What a segment holds or keeps may go.
  const Plan::Segment first{0, 3, -1}, second{3, 6, -1};
  const PlanCost dropped = evaluate(graph, {.segments = {first, second}, .offloads = {{1, 0, 2}}});
  CHECK(dropped.offloaded == 0);
  CHECK(dropped.offloads.empty());
  const PlanCost held = evaluate(graph, {.segments = {first, second}, .offloads = {{2, 0, 3}}});
  CHECK(held.held == 0);
  CHECK(held.cost == 5 + 5);
  CHECK(held.offloads.size() == 1);
  const PlanCost kept =
      evaluate(graph, {.segments = {first, second}, .keep = {{1}}, .offloads = {{1, 0, 2}}});
  CHECK(kept.held == 10);
  CHECK(kept.cost == 4 + 5);
}

TEST_CASE("offloads: those that cannot be are refused") {
  const Graph graph = with_offloads(uniform_chain(6, 10), 0.5);
  CHECK(contains(message_of<ValueError>([&] {
                   evaluate(graph, {.offloads = {{1, 0, 2}, {0, 0, 1}}});
                 }),
                 "[recompute] offloads must be in the order"));
  CHECK_THROWS_AS(evaluate(graph, {.offloads = {{2, 0, 1}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.offloads = {{6, 0, 6}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.offloads = {{0, 1, 1}}}), ValueError);
}

TEST_CASE("offloads: where copies are cheap, nothing is recomputed") {
  const Graph graph = uniform_chain(40, 10);
  for (const uint64_t bytes : {300, 200, 100, 50}) {
    const auto alone = plan_budget(graph, bytes);
    const auto plan = plan_budget(with_offloads(graph, 0.02), bytes);
    REQUIRE((alone && plan));
    CHECK(plan->peak <= bytes);
    CHECK(plan->cost < 0.5 * alone->cost);
    CHECK(!plan->offloads.empty());
  }
}

TEST_CASE("offloads: where copies are dear, plans are those of recomputation") {
  const Graph graph = uniform_chain(40, 10);
  for (const uint64_t bytes : {300, 200, 150}) {
    const auto alone = plan_budget(graph, bytes);
    const auto plan = plan_budget(with_offloads(graph, 10), bytes);
    REQUIRE((alone && plan));
    CHECK(plan->offloads.empty());
    CHECK(plan->cost == alone->cost);
  }
}

TEST_CASE("offloads: dear values go to the host and cheap ones are recomputed") {
  const Graph graph = with_offloads(dear_and_cheap(20), 1);
  const auto plan = plan_budget(graph, 100);
  REQUIRE(plan);
  size_t dear = 0;
  for (const Plan::Offload& offload : plan->offloads) dear += offload.record % 2;
  CHECK(dear >= 10);
  CHECK(plan->offloads.size() <= dear + 2);
  CHECK(!plan->segments.empty());
  CHECK(plan->cost < 250);
  CHECK(plan->cost < 0.3 * plan_budget(dear_and_cheap(20), 100)->cost);
}

TEST_CASE("offloads: the host has room for some") {
  Graph graph = with_offloads(uniform_chain(40, 10), 0.02);
  for (const uint64_t room : {0, 50, 200, 1000}) {
    graph.host_bytes = room;
    uint64_t most = 0;
    std::vector<Plan> plans = plan_budgets(graph);
    if (const auto plan = plan_budget(graph, 150)) plans.push_back(*plan);
    for (const Plan& plan : plans) {
      CHECK(plan.offloaded == evaluate(graph, plan).offloaded);
      most = std::max(most, plan.offloaded);
    }
    CHECK(most <= room);
    CHECK(most >= std::min<uint64_t>(room, 200));
  }
}

TEST_CASE("offloads: passes have the plain run's bits, and the bytes that were predicted") {
  Search search = search_offloads(quick);
  CHECK(check_runs(search, [] { return std::make_unique<Discrete>(quick); }) > 0);
  // Every candidate of recomputation alone has one on or below it, and most have one far below.
  Search alone = search_offloads(quick, {.host_bytes = 0});
  const auto best = [&](uint64_t peak) {
    double cost = INFINITY;
    for (const Candidate& other : search.candidates())
      if (other.peak() <= peak) cost = std::min(cost, other.cost);
    return cost;
  };
  size_t far_below = 0;
  for (const Candidate& choice : alone.candidates()) {
    CHECK(choice.plan.offloads.empty());
    CHECK(best(choice.peak()) <= choice.cost);
    far_below += best(choice.peak()) < 0.5 * choice.cost;
  }
  CHECK(2 * far_below > alone.candidates().size());
  CHECK(search.memory().plan.offloads.empty());
}

TEST_CASE("offloads: plans that may have them are never dearer than plans that may not") {
  for (const HostBandwidth& bandwidth : {quick, slow})
    for (const double effort : {0.01, 1.0}) {
      Search search = search_offloads(bandwidth, {.effort = effort});
      Search alone = search_offloads(bandwidth, {.effort = effort, .host_bytes = 0});
      const uint64_t plain = alone.plain().peak(), least = alone.candidates().back().peak();
      for (uint64_t k = 0; k <= 8; ++k) {
        const uint64_t bytes = least + (plain - least) * k / 8;
        CAPTURE(bytes);
        CHECK(search.budget(bytes).cost <= alone.budget(bytes).cost);
      }
    }
}

TEST_CASE("offloads: plans of devices that compute in the host's memory have none") {
  Search search = search_offloads({}), dear = search_offloads(slow);
  Search alone([] { return open_backend("dry:reference"); }, [] { train_chain(); },
               {.candidates = 12});
  REQUIRE(search.candidates().size() == alone.candidates().size());
  for (size_t i = 0; i < alone.candidates().size(); ++i) {
    CHECK(search.candidates()[i].plan.offloads.empty());
    CHECK(search.candidates()[i].peak() == alone.candidates()[i].peak());
    CHECK(search.candidates()[i].cost == alone.candidates()[i].cost);
  }
  for (const Candidate& choice : dear.candidates()) CHECK(choice.plan.offloads.empty());
}

TEST_CASE("offloads: AutoRecompute, and what the host has no memory for") {
  set_default_device(std::make_unique<Discrete>(quick));
  const auto plain = train_chain();
  const uint64_t budget = default_device()->memory_report().peak * 2 / 3;
  for (const uint64_t host_bytes : {UINT64_MAX, uint64_t{0}}) {
    const auto device = set_default_device(std::make_unique<Discrete>(quick, host_bytes));
    const AutoRecompute recompute({.budget = budget});
    CHECK(train_chain() == plain);
    CHECK(device->memory_report().peak_reserved <= budget);
    CHECK((device->memory_report().host_peak > 0) == (host_bytes > 0));
  }
}

TEST_CASE("offloads: eviction sends to the host what is dear to recompute") {
  struct Outcome {
    std::vector<float> losses;
    MemoryReport memory;
  };
  const auto train_wide = [](uint64_t budget) {
    std::optional<MemoryBudget> limit;
    std::optional<PlanFollower> scope;
    if (budget > 0) {
      limit.emplace(budget);
      scope.emplace(Plan{.evicts = true});
    }
    Outcome outcome;
    std::vector<Tensor> weights;
    manual_seed(3);
    for (int i = 0; i < 12; ++i) weights.push_back(randn({400, 8}, 0.05f).set_requires_grad());
    const Tensor x = randn({1024, 400});
    for (int step = 0; step < 3; ++step) {
      Tensor total = zeros({});
      for (const Tensor& w : weights) {
        const Tensor y = relu(matmul(x, w));
        total = total + mean(y * relu(y));
      }
      total.backward();
      outcome.losses.push_back(total.item());
      for (Tensor& w : weights) {
        outcome.losses.push_back(sum(square(w.grad())).item());
        w.set_grad({});
      }
      default_device()->end_step();
    }
    outcome.memory = default_device()->memory_report();
    return outcome;
  };
  const auto on = [&](HostBandwidth bandwidth, uint64_t budget) {
    const DeviceScope scope(Device::create(std::make_unique<Discrete>(bandwidth)));
    const MemoryReport dry = plan([&] { train_wide(budget); }).memory;
    Outcome outcome = train_wide(budget);
    CHECK(dry.peak == outcome.memory.peak);
    CHECK(dry.host_peak == outcome.memory.host_peak);
    CHECK(outcome.memory.host_live == 0);
    return outcome;
  };
  const Outcome whole = on({}, 0);
  const uint64_t budget = whole.memory.peak - (uint64_t{560} << 10);
  for (const HostBandwidth bandwidth : {HostBandwidth{}, slow, HostBandwidth{25e9, 25e9}}) {
    const Outcome outcome = on(bandwidth, budget);
    CHECK(outcome.losses == whole.losses);
    CHECK(outcome.memory.peak_reserved <= budget);
    CHECK((outcome.memory.host_peak > 0) == (bandwidth.to_host == 25e9));
  }
}

TEST_SUITE_END();

TEST_CASE("offloads: on vulkan, through memory of its own") {
  const Without shared("unified-memory");
  try {
    set_default_device(open_backend("vulkan"));
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  const DeviceInfo& info = default_device()->info();
  CHECK(info.host_bandwidth.to_host > 0);
  DeviceInfo fast = info;
  fast.host_bandwidth = quick;
  Search search([&] { return open_backend("dry:vulkan")->dry(fast); }, [] { train_chain(); },
                {.candidates = 12});
  CHECK(check_runs(search, [] { return open_backend("vulkan"); }) > 0);
}

}  // namespace rw::test
