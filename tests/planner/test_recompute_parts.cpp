// The parts of the recompute planner on graphs that are small enough to compute by hand, and the
// recorded graphs of programs.
#include <algorithm>
#include <memory>
#include <numeric>

#include "planner/follow/follower.h"
#include "planner/graph/cuts.h"
#include "planner/graph/evaluate.h"
#include "planner/search/chain.h"
#include "planner/search/cost_rows.h"
#include "planner/search/plans.h"
#include "planner/search/polish.h"
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

TEST_CASE("uses: the dearest records per byte that make up nine tenths of the cost are heavy") {
  using Marks = std::vector<bool>;
  const auto heavy = [](const std::vector<double>& costs, uint64_t first_bytes = 10) {
    GraphBuilder b;
    uint32_t x = b.external(10);
    for (const double cost : costs)
      x = b.add({x}, b.graph.records.empty() ? first_bytes : 10, {.cost = cost});
    Marks marks;
    for (const ValueUse& use : value_uses(b.graph))
      if (use.rank != UINT32_MAX) marks.push_back(use.is_heavy);
    return marks;
  };
  CHECK(heavy({10, 90}) == Marks{false, true});
  CHECK(heavy({11, 89}) == Marks{true, true});
  CHECK(heavy({30, 0, 30}) == Marks{true, false, true});
  CHECK(heavy({0, 0}) == Marks{false, false});
  CHECK(heavy({90, 10}, 1000) == Marks{true, true});  // the second is dearer per byte
  CHECK(heavy({90, 10}, 0) == Marks{true, false});
  CHECK(heavy(std::vector<double>(20, 5)) == Marks(20, true));  // one is as dear as the other
}

TEST_CASE("ranges: what a segment keeps costs and weighs what the simulation says") {
  std::mt19937 random(6);
  int found = 0;
  for (int round = 0; round < 40; ++round) {
    const Graph graph = random_chain(7, random);
    const auto uses = value_uses(graph);
    const uint32_t first = random() % 2, last = 3 + random() % 4;
    std::vector<uint32_t> crossing;
    for (const uint32_t v : graph.records[last - 1].outputs)
      if (uses[v].last_reader >= static_cast<int32_t>(last)) crossing.push_back(v);
    const PlanSegments alone = {{first, last, -1}}, after = {{last, 7, -1}},
                       both = {{first, last, -1}, {last, 7, -1}};
    const PlanCost nothing = evaluate(graph, {.segments = both});
    for (const KeepOption& option : RecordRange(graph, uses, first, last).keep_options(crossing)) {
      Plan plan;
      for (const uint32_t v : option.kept) plan.keep.push_back(graph.output(v));
      plan.segments = alone;
      CHECK(evaluate(graph, plan).cost == option.unaided_cost);
      plan.segments = both;
      const PlanCost segment_follows = evaluate(graph, plan);
      CHECK(segment_follows.cost - evaluate(graph, {.segments = after}).cost == option.cost);
      CHECK(segment_follows.held - nothing.held == option.bytes);
      CHECK(segment_follows.peak >= option.peak);
      ++found;
    }
  }
  CHECK(found > 50);
}

TEST_CASE("ranges: what was found for a range of one layer is what others of its shape have") {
  std::mt19937 random(7);
  std::vector<Graph> graphs = {bert(4, 16), resnet(3, 8, true), random_chain(12, random)};
  for (uint64_t i = 0; i < 12; ++i) graphs[2].leaf_gradients.push_back(100 * (12 - i) * (12 - i));
  graphs[0].leaf_gradients.resize(graphs[0].records.size());
  for (size_t i = graphs[0].records.size(), sum = 0; i-- > 0; sum += 3)
    graphs[0].leaf_gradients[i] = sum;
  for (const Graph& graph : graphs) {
    const auto uses = value_uses(graph);
    const auto records = static_cast<uint32_t>(graph.records.size());
    KnownOptions known;
    for (uint32_t first = 0; first < records; ++first)
      for (uint32_t last = first + 1; last <= std::min(records, first + 20); ++last) {
        const RecordRange range(graph, uses, first, last);
        std::vector<uint32_t> crossing;
        for (uint32_t v = 0; v < graph.values.size(); ++v)
          if (graph.values[v].record >= 0 && graph.values[v].record < static_cast<int32_t>(last) &&
              uses[v].last_reader >= static_cast<int32_t>(last))
            crossing.push_back(v);
        const std::vector<KeepOption> options = range.keep_options(crossing),
                                      shared = known.of(range, crossing);
        REQUIRE(options.size() == shared.size());
        for (size_t i = 0; i < options.size(); ++i) {
          CHECK(shared[i].kept == options[i].kept);
          CHECK(shared[i].bytes == options[i].bytes);
          CHECK(shared[i].peak == options[i].peak);
          CHECK(shared[i].cost == options[i].cost);
          CHECK(shared[i].unaided_cost == options[i].unaided_cost);
        }
      }
  }
}

TEST_CASE("ranges: a segment of everything peaks in its forward, or as its range says") {
  std::mt19937 random(10);
  int in_backward = 0;
  for (int round = 0; round < 40; ++round) {
    const Graph graph = random_chain(7, random);
    Graph forward = graph;
    for (Graph::Record& record : forward.records) record.reached = false;
    const auto uses = value_uses(graph);
    for (const KeepOption& option : RecordRange(graph, uses, 0, 7).keep_options({})) {
      Plan plan{.segments = {{0, 7, -1}}};
      for (const uint32_t v : option.kept) plan.keep.push_back(graph.output(v));
      const uint64_t peak = evaluate(graph, plan).peak;
      CHECK(peak == std::max(option.peak, evaluate(forward, plan).peak));
      in_backward += peak == option.peak;
    }
  }
  CHECK(in_backward > 20);
}

TEST_CASE("cost rows: ways cost what plain arrays of costs say") {
  struct Known {
    CostRow row;
    std::vector<float> costs;
  };
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    const uint32_t slots = 1 + random() % 12;
    CostStore store;
    CostDraft draft(slots);
    std::vector<Known> known = {{CostStore::free, std::vector<float>(slots + 1, 0)}};
    for (int k = 0; k < 8; ++k) {
      draft.clear();
      std::vector<float> costs(slots + 1, infeasible_cost);
      for (uint32_t way = 1 + random() % 4; way > 0; --way) {
        const Known &own = known[random() % known.size()], &rest = known[random() % known.size()];
        const uint32_t first = random() % (slots + 2), hold = random() % (slots + 2);
        const auto cost = static_cast<float>(random() % 8);
        const std::vector<float> before = costs;
        for (uint32_t m = std::max(first, hold); m <= slots; ++m)
          costs[m] = std::min(costs[m], cost + own.costs[m] + rest.costs[m - hold]);
        const uint32_t numbers = draft.add(first, cost, own.row, rest.row, hold);
        if (numbers == 0) CHECK(costs == before);
        CHECK(numbers <= slots + 1);
      }
      if (random() % 2) {
        const Known& other = known[random() % known.size()];
        draft.add(other.row);
        for (uint32_t m = 0; m <= slots; ++m) costs[m] = std::min(costs[m], other.costs[m]);
      }
      const CostRow row = store.add(draft);
      CHECK(row.is_feasible() == (costs[slots] < infeasible_cost));
      for (uint32_t m = 0; m <= slots; ++m) CHECK(store.cost(row, m) == costs[m]);
      known.push_back({row, costs});
    }
  }
}

TEST_CASE("polish: plans whose replays keep values stay plans that hold") {
  std::mt19937 random(8);
  int cheaper = 0;
  for (int round = 0; round < 40; ++round) {
    const Graph graph = random_chain(8, random);
    Plan plan = nested_halving(8, 1);
    for (uint32_t s = 0; s < plan.segments.size(); ++s) {
      const auto [first, last, parent] = plan.segments[s];
      if (last - first < 2 || random() % 3 == 0) continue;  // others are inside
      const uint32_t record = first + random() % (last - first);
      plan.keep.push_back({record, 0, static_cast<int32_t>(s)});
    }
    fill_in(graph, plan);
    const Plan polished = polish(graph, plan.peak, plan);
    const PlanCost cost = evaluate(graph, polished);
    CHECK(cost.peak <= plan.peak);
    CHECK(cost.cost == polished.cost);
    CHECK(cost.cost <= plan.cost);
    cheaper += cost.cost < plan.cost;
    CHECK(polish(graph, 10 * plan.peak, plan).cost == 0);
  }
  CHECK(cheaper > 20);
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

TEST_CASE("speed: between forward and backward no plan holds more than everything kept") {
  std::mt19937 random(9);
  int less = 0;
  for (uint32_t round = 0; round < 80; ++round) {
    const Graph graph = round % 2 ? random_chain(12, random) : random_dag(12, random);
    const uint32_t every = 2 + round % 3;
    const Plan plan = plan_speed(graph, [=](uint32_t record) { return record % every == 0; });
    const uint64_t held = evaluate(graph, plan).held, plain = evaluate(graph, {}).held;
    CHECK(held <= plain);
    CHECK((held < plain) == !plan.is_plain());
    less += held < plain;
  }
  CHECK(less > 20);
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
