// The parts of the recompute planner on graphs that are small enough to compute by hand, and the
// recorded graphs of programs.
#include <memory>
#include <numeric>

#include "planner/follow/follower.h"
#include "planner/graph/cuts.h"
#include "planner/graph/evaluate.h"
#include "planner/search/chain.h"
#include "planner/search/speed.h"
#include "tests/fixtures/recompute_graphs.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

// Checks that a plan of the programme fits, to the byte, and costs at most what the programme says.
void check_programme(const Graph& graph, const std::vector<uint32_t>& cuts, uint32_t slots) {
  const auto uses = value_uses(graph);
  ChainPlanner planner(graph, uses, std::make_shared<const StageLevels>(graph, uses, cuts),
                       {.unit = 1, .slots = slots});
  REQUIRE(planner.is_feasible(slots));
  for (uint32_t m = slots; planner.is_feasible(m); --m) {
    Plan plan;
    planner.append_plan(m, -1, plan);
    const PlanCost measured = evaluate(graph, plan);
    REQUIRE(measured.peak <= m);
    REQUIRE(measured.cost <= planner.cost(m));
  }
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("liveness: gradients of leaves stay from the vjp that makes them on") {
  Graph graph = uniform_chain(6, 10);
  CHECK(evaluate(graph, {}).peak == 80);
  graph.leaf_gradients = {100, 100, 100, 0, 0, 0};
  CHECK(evaluate(graph, {}).peak == 150);  // three values, two gradients and the leaf's
}

TEST_CASE("liveness: the gradient of a view is a view") {
  GraphBuilder b;
  const uint32_t x = b.add({b.external(8)}, 100, {.saves_output = true});
  b.graph.records.push_back({.inputs = {x}});
  b.add({x}, 1, {});  // reads the view
  CHECK(evaluate(b.graph, {}).peak == 201);
}

TEST_CASE("liveness: what a vjp takes goes before its gradient is made") {
  GraphBuilder b;
  const uint32_t x = b.add({b.external(8)}, 100, {});
  b.add({x}, 1, {.saves_inputs = true});
  CHECK(evaluate(b.graph, {}).peak == 201);
  b.graph.records.back().taken = 1;
  CHECK(evaluate(b.graph, {}).peak == 101);
}

TEST_CASE("stages: a segment that runs holds what crosses into its next stage") {
  const Graph graph = uniform_chain(4, 10);
  const Stages stages(graph, value_uses(graph), {0, 1, 2, 3, 4});
  CHECK(stages.sweep_peak(0, 1) == 10);
  CHECK(stages.sweep_peak(0, 2) == 20);  // x1, while x2 is made
  CHECK(stages.replay_peak(0, 2) == 20);
}

TEST_CASE("chain: plans fit and cost what the programme says") {
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) {
    const Graph graph = random_chain(6, random);
    std::vector<uint32_t> cuts(graph.records.size() + 1);
    std::iota(cuts.begin(), cuts.end(), 0u);
    check_programme(graph, cuts, static_cast<uint32_t>(evaluate(graph, {}).peak));
  }
}

TEST_CASE("chain: what is made again lies beside the gradients that wait for it") {
  GraphBuilder b;
  const uint32_t wide = b.add({b.external(8)}, 100, {.cost = 1});
  b.graph.records[0].reached = false;
  uint32_t x = wide;
  for (int i = 0; i < 3; ++i) x = b.add({x}, 10, {.saves_output = true, .cost = 1});
  b.graph.leaf_gradients = {500, 500, 500, 500};  // of the last record's weight
  check_programme(b.graph, {0, 2, 3, 4}, 700);
}

TEST_CASE("cuts: where the fewest bytes cross") {
  GraphBuilder b;
  uint32_t x = b.external(8);
  for (const uint64_t bytes : {1u, 100u, 100u, 100u, 100u, 1u}) x = b.add({x}, bytes, {.cost = 1});
  CHECK(cut_into_stages(b.graph, value_uses(b.graph), 0, 6, 2) == std::vector<uint32_t>{0, 1, 6});
}

TEST_CASE("speed: no segment that holds more than it drops") {
  for (const bool saves_input : {false, true}) {
    GraphBuilder b;
    const uint32_t heavy = b.add({b.external(8)}, 100, {.saves_inputs = true, .cost = 10});
    const uint32_t light =
        b.add({heavy}, 10, {.saves_inputs = saves_input, .saves_output = true, .cost = 1});
    b.add({light}, 1, {.cost = 10});
    const Plan plan = plan_speed(b.graph, [](uint32_t record) { return record != 1; });
    // The segment would hold the heavy value, which a plain run keeps only if a vjp reads it.
    CHECK(plan.segments.size() == (saves_input ? 1 : 0));
  }
}

TEST_CASE_FIXTURE(CpuDevice, "recorded graphs: a view makes no value, and passes its content on") {
  Graph recorded;
  {
    const Tensor x = leaf(256);
    const PlanFollower scope({}, &recorded);
    const Tensor y = reshape(exp(x), {16, 16});
    sum(square(y)).backward();
  }
  const auto& records = recorded.records;
  REQUIRE(records.size() == 4);
  CHECK(records[1].op == "reshape");
  CHECK(records[0].outputs.size() == 1);
  CHECK(records[1].outputs.empty());
  CHECK(records[2].inputs == records[0].outputs);
}

TEST_CASE_FIXTURE(CpuDevice, "recorded graphs: what an op has while it runs is its workspace") {
  constexpr int64_t scratch = 4096;
  const Op wasteful = {.name = "wasteful",
                       .forward =
                           [](const std::any&, std::span<Tensor> in) {
                             const Tensor waste = zeros({scratch});
                             return std::vector<Tensor>{in[0] * 2.0f};
                           },
                       .vjp = [](Record&, std::span<Tensor> dy) { return std::vector{dy[0]}; }};
  Graph recorded;
  {
    const Tensor x = leaf(256);
    const PlanFollower scope({}, &recorded);
    sum(apply1(wasteful, {}, {x})).backward();
  }
  REQUIRE(recorded.records[0].label == "wasteful");
  CHECK(recorded.records[0].workspace == scratch * sizeof(float));
  CHECK(recorded.values[recorded.records[0].outputs[0]].bytes == 1024);
}

TEST_SUITE_END();

}  // namespace rw::test
