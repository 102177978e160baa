// The recompute planner on graphs without tensors: compared with brute force, and on models'
// shapes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "planner/graph/evaluate.h"
#include "planner/search/chain.h"
#include "planner/search/plans.h"
#include "planner/search/polish.h"
#include "planner/search/speed.h"
#include "tests/fixtures/recompute_graphs.h"

namespace rw::test {

namespace {

// Returns the values that records inside segments make.
std::vector<uint32_t> inner_values(const Graph& graph, const PlanSegments& segments) {
  std::vector<uint32_t> values;
  for (uint32_t v = 0; v < graph.values.size(); ++v)
    if (std::any_of(segments.begin(), segments.end(), [&](const auto& s) {
          const int64_t maker = graph.values[v].record;
          return maker >= s.first && maker < s.last;
        }))
      values.push_back(v);
  return values;
}

// Returns the least cost of any plan by its peak, for the plans worth having.
std::map<uint64_t, double> best_plans(const Graph& graph, bool with_keep) {
  std::map<uint64_t, double> best;
  Plan plan;
  const auto n = static_cast<uint32_t>(graph.records.size());
  for_each_forest(0, n, -1, false, plan.segments, [&] {
    const std::vector<uint32_t> inner = inner_values(graph, plan.segments);
    for (uint32_t kept = 0; kept < (with_keep ? 1u << inner.size() : 1u); ++kept) {
      plan.keep.clear();
      for (size_t i = 0; i < inner.size(); ++i)
        if (kept >> i & 1) plan.keep.push_back(graph.output(inner[i]));
      const PlanCost cost = evaluate(graph, plan);
      const auto [found, is_new] = best.emplace(cost.peak, cost.cost);
      found->second = std::min(found->second, cost.cost);
    }
  });
  double least = 1e30;
  std::erase_if(best, [&](const auto& entry) {
    if (entry.second >= least) return true;
    least = entry.second;
    return false;
  });
  return best;
}

std::optional<Plan> cheapest_within(const std::vector<Plan>& plans, uint64_t bytes) {
  for (const Plan& plan : plans)
    if (plan.peak <= bytes) return plan;
  return std::nullopt;
}

// Relative to a step: a forward pass, and a backward pass of twice its cost.
double overhead(const Graph& graph, const Plan& plan) {
  return plan.cost / (3 * forward_cost(graph));
}

void check_pareto(const Graph& graph, const std::vector<Plan>& plans) {
  REQUIRE(!plans.empty());
  CHECK(plans.front().cost == 0);
  CHECK(plans.front().peak <= evaluate(graph, {}).peak);
  for (size_t i = 0; i < plans.size(); ++i) {
    const PlanCost cost = evaluate(graph, plans[i]);
    CHECK(cost.peak == plans[i].peak);
    CHECK(cost.cost == plans[i].cost);
    if (i == 0) continue;
    CHECK(plans[i].peak < plans[i - 1].peak);
    CHECK(plans[i].cost > plans[i - 1].cost);
  }
}

// Checks that every budget that some plan fits is met, at nearly the least time that any plan needs
// for it.
void check_against_brute_force(const Graph& graph, bool with_keep) {
  const std::vector<Plan> plans = plan_budgets(graph, 64);
  check_pareto(graph, plans);
  const double step = 3 * forward_cost(graph);
  const auto best = best_plans(graph, with_keep);
  CHECK(static_cast<double>(plans.back().peak) <= 1.05 * static_cast<double>(best.begin()->first));
  for (const auto& [bytes, cost] : best) {
    std::optional<Plan> plan = plan_budget(graph, bytes);
    if (plan) CHECK(plan->peak <= bytes);
    if (const auto other = cheapest_within(plans, bytes);
        !plan || (other && other->cost < plan->cost))
      plan = other;
    if (!plan) {
      CHECK(static_cast<double>(plans.back().peak) <= 1.05 * static_cast<double>(bytes));
      continue;
    }
    if (with_keep) CHECK(plan->cost >= cost);  // plans keep values, whatever the optimum may do
    // The programme does not know that values that a segment reads from outside may go after its
    // replay.
    CHECK(step + plan->cost <= 1.2 * (step + cost));
  }
}

uint32_t depth(const Plan& plan) {
  uint32_t most = 0;
  for (const auto& segment : plan.segments) {
    uint32_t depth = 1;
    for (int32_t s = segment.parent; s >= 0; s = plan.segments[s].parent) ++depth;
    most = std::max(most, depth);
  }
  return most;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("recompute: simulation of a chain of outputs") {
  const Graph graph = uniform_chain(6, 10);
  // Six values, then the gradients of an output and an input on top of them.
  const PlanCost plain = evaluate(graph, {});
  CHECK(plain.held == 60);
  CHECK(plain.peak == 80);
  CHECK(plain.cost == 0);

  // [0, 3) and [3, 6): the second holds value 2 and has three values replayed. It leaves value 2
  // to the first, which runs only two records again.
  const PlanCost two = evaluate(graph, {.segments = {{0, 3, -1}, {3, 6, -1}}});
  CHECK(two.held == 10);
  CHECK(two.peak == 60);
  CHECK(two.cost == 5);
  CHECK(two.replayed == 5);

  // Kept values are held from forward on and need not be made again.
  const PlanCost kept = evaluate(graph, {.segments = {{0, 3, -1}, {3, 6, -1}}, .keep = {{3}, {4}}});
  CHECK(kept.held == 30);
  CHECK(kept.cost == 3);

  // The outer segment's replay makes value 1 for its second child; [0, 2) is replayed from there.
  const PlanCost nested = evaluate(graph, {.segments = {{0, 4, -1}, {0, 2, 0}, {2, 4, 0}}});
  CHECK(nested.cost == 2 + 2 + 1);
}

TEST_CASE("recompute: the chain of four stages that docs/planner.md works by hand") {
  const Graph graph = uniform_chain(4, 10);
  const auto uses = value_uses(graph);
  const auto levels =
      std::make_shared<const StageLevels>(graph, uses, std::vector<uint32_t>{0, 1, 2, 3, 4});
  ChainPlanner planner(graph, uses, levels, {.unit = 10, .slots = 6});
  CHECK(!planner.is_feasible(2));
  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;
  const auto check_plan = [&](uint32_t slots, double cost, const Ranges& ranges) {
    CHECK(planner.cost(slots) == cost);
    Plan plan;
    planner.append_plan(slots, -1, plan);
    Ranges found;
    for (const auto& segment : plan.segments) found.emplace_back(segment.first, segment.last);
    CHECK(found == ranges);
    const PlanCost measured = evaluate(graph, plan);
    CHECK(measured.cost == cost);
    CHECK(measured.peak == 10 * slots);
  };
  check_plan(3, 6, {{0, 3}, {0, 2}, {0, 1}});
  check_plan(4, 2, {{0, 1}, {2, 3}});
  check_plan(5, 1, {{2, 3}});
  check_plan(6, 0, {});
  const Stages& stages = (*levels)[0];
  CHECK(stages.crossing(0, 1) == 10);      // x1, which a segment at stage 1 holds
  CHECK(stages.crossing_held(0, 1) == 0);  // and plain records do not
  CHECK(stages.stages[0].unaided_tail - stages.stages[0].tail == 1);
}

TEST_CASE("recompute: what a replay keeps is not made again by the segments inside") {
  const Graph graph = uniform_chain(8, 10);
  const PlanSegments segments = {{0, 6, -1}, {0, 3, 0}, {3, 6, 0}};
  const PlanCost nothing = evaluate(graph, {.segments = segments});
  CHECK(nothing.cost == 6 + 2);  // x1 to x6, as [3, 6) reads x3 and hands x6 on; then x1 and x2
  // This keeps the middle value of [0, 3): x2 exists, and x1 must be made for its own sake.
  const PlanCost one = evaluate(graph, {.segments = segments, .keep = {{1, 0, 0}}});
  CHECK(one.cost == nothing.cost - 1);
  CHECK(one.held == nothing.held);
  const PlanCost both = evaluate(graph, {.segments = segments, .keep = {{0, 0, 0}, {1, 0, 0}}});
  CHECK(both.cost == nothing.cost - 2);
  CHECK(both.peak >= one.peak);
  // Values that exist from the forward pass on cost no replay, but memory all the time.
  const PlanCost forward = evaluate(graph, {.segments = segments, .keep = {{0}, {1}}});
  CHECK(forward.held == nothing.held + 20);
  CHECK_THROWS_AS(evaluate(graph, {.segments = segments, .keep = {{1, 0, 1}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.segments = segments, .keep = {{6, 0, 0}}}), ValueError);
}

TEST_CASE("recompute: a residual input that nobody saves any more is held for a later segment") {
  // x is made and saved in a segment, and added to the result of a later one.
  GraphBuilder b;
  uint32_t x = b.matmul(b.external(100), 100, 1);
  for (int block = 0; block < 6; ++block) {
    const uint32_t in = b.relu(x);
    uint32_t h = in;
    for (int i = 0; i < 3; ++i) h = b.relu(b.matmul(h, 100, 1));
    x = b.sum(in, b.norm(b.matmul(h, 100, 1)));
  }
  b.add({x}, 4, {.saves_inputs = true});
  const PlanCost plain = evaluate(b.graph, {});
  // Plans that the programme expects to fit do fit, with a stage for each record.
  const auto uses = value_uses(b.graph);
  std::vector<uint32_t> cuts(b.graph.records.size() + 1);
  std::iota(cuts.begin(), cuts.end(), 0u);
  constexpr uint32_t slots = 200;
  const uint64_t unit = plain.peak / slots + 1;
  ChainPlanner planner(b.graph, uses, std::make_shared<const StageLevels>(b.graph, uses, cuts),
                       {.unit = unit, .slots = slots});
  for (uint32_t m = slots; planner.is_feasible(m); --m) {
    Plan plan;
    planner.append_plan(m, -1, plan);
    CHECK(evaluate(b.graph, plan).peak <= unit * m * 21 / 20);  // bytes are rounded
  }
  for (const double share : {0.8, 0.6, 0.5, 0.4}) {
    const auto bytes = static_cast<uint64_t>(share * static_cast<double>(plain.peak));
    const auto plan = plan_budget(b.graph, bytes);
    REQUIRE(plan);
    CHECK(plan->peak <= bytes);
  }
}

TEST_CASE("recompute: only needed records run again") {
  GraphBuilder b;
  const uint32_t x = b.add({b.external(8)}, 8, {.saves_output = true, .cost = 1});
  const uint32_t y = b.add({x}, 8, {.saves_inputs = true, .cost = 2});
  b.add({x}, 8, {.cost = 4});                     // read by nobody
  const uint32_t z = b.add({y}, 8, {.cost = 8});  // neither its vjp nor a record inside reads it
  b.add({z}, 8, {.saves_inputs = true, .cost = 16});
  const PlanCost cost = evaluate(b.graph, {.segments = {{0, 4, -1}}});
  CHECK(cost.cost == 1);
  CHECK(cost.held == 8);
}

TEST_CASE("recompute: views cost nothing") {
  Graph graph = uniform_chain(6, 10);
  const PlanCost plain = evaluate(graph, {});
  graph.records.insert(graph.records.begin() + 3, Graph::Record{.inputs = {3}});
  for (Graph::Value& value : graph.values)
    if (value.record >= 3) ++value.record;
  const PlanCost with_view = evaluate(graph, {});
  CHECK(with_view.peak == plain.peak);
  CHECK(with_view.held == plain.held);
  check_pareto(graph, plan_budgets(graph));
  const auto one = plan_budgets(graph, 1);
  REQUIRE(one.size() == 1);
  CHECK(one[0].is_plain());
}

TEST_CASE("recompute: plans that do not nest are refused") {
  const Graph graph = uniform_chain(6, 10);
  CHECK_THROWS_AS(evaluate(graph, {.segments = {{0, 7, -1}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.segments = {{3, 3, -1}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.segments = {{0, 3, -1}, {2, 4, -1}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.segments = {{0, 3, -1}, {2, 4, 0}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.segments = {{3, 5, -1}, {0, 2, -1}}}), ValueError);
  CHECK_THROWS_AS(evaluate(graph, {.segments = {{0, 3, -1}}, .keep = {{4}}}), ValueError);
}

TEST_CASE("recompute: polishing uses what room a plan leaves" * doctest::test_suite("host")) {
  std::mt19937 random(5);
  int cheaper = 0;
  for (int i = 0; i < 20; ++i) {
    const Graph graph = random_chain(12, random);
    const uint64_t plain = evaluate(graph, {}).peak;
    Plan plan = nested_halving(12, 2);
    fill_in(graph, plan);
    const uint64_t bytes = std::max(plan.peak, plain * 3 / 4);
    const Plan polished = polish(graph, bytes, plan);
    const PlanCost cost = evaluate(graph, polished);
    CHECK(cost.peak <= bytes);
    CHECK(cost.peak == polished.peak);
    CHECK(cost.cost <= plan.cost);
    cheaper += cost.cost < plan.cost;
    CHECK(polish(graph, 2 * std::max(plain, plan.peak), plan).cost ==
          0);  // with all the room, nothing is replayed
  }
  CHECK(cheaper > 10);
}

TEST_CASE("recompute: budgets against brute force on chains") {
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) check_against_brute_force(random_chain(6, random), false);
  for (int i = 0; i < 8; ++i) check_against_brute_force(random_chain(5, random), true);
}

TEST_CASE("recompute: CIFAR ResNet v2, 19 blocks a stage, batch 1280") {
  const Graph graph = resnet(19, 1280, false);
  const auto plans = plan_budgets(graph);
  check_pareto(graph, plans);
  CHECK(plans.front().peak > 5.7e9);
  const auto plan = plan_budget(graph, 1'250'000'000);
  REQUIRE(plan);
  CHECK(overhead(graph, *plan) < 0.25);
  CHECK(plans.back().peak < 600e6);
  const Plan memory = plan_memory(graph);
  CHECK(memory.peak < 1.2e9);
  CHECK(overhead(graph, memory) < 0.27);
}

TEST_CASE("recompute: ResNet with BatchNorm drops what is cheap first") {
  const Graph graph = resnet(19, 1280, true);
  const uint64_t plain = evaluate(graph, {}).peak;
  const auto half = plan_budget(graph, plain * 51 / 100);
  REQUIRE(half);
  CHECK(overhead(graph, *half) < 0.005);
  const Plan speed =
      plan_speed(graph, [&](uint32_t record) { return graph.records[record].cost >= 0.1; });
  CHECK(speed.peak <= plain * 51 / 100);
  CHECK(overhead(graph, speed) < 0.001);
  const auto eighth = plan_budget(graph, plain / 8);
  REQUIRE(eighth);
  CHECK(overhead(graph, *eighth) < 0.25);
}

TEST_CASE("recompute: BERT") {
  const Graph graph = bert(12, 1 << 20);
  const auto plans = plan_budgets(graph);
  check_pareto(graph, plans);
  const uint64_t plain = plans.front().peak;
  const auto third = cheapest_within(plans, plain / 3);
  const auto sixth = plan_budget(graph, plain / 6);
  REQUIRE((third && sixth));
  CHECK(overhead(graph, *third) < 0.12);
  CHECK(overhead(graph, *sixth) < 0.22);
  const Plan speed =
      plan_speed(graph, [&](uint32_t record) { return graph.records[record].cost >= 0.1; });
  CHECK(speed.peak < plain * 7 / 10);
  CHECK(overhead(graph, speed) < 0.001);
}

TEST_CASE("recompute: U-Net, whose skips cross every cut") {
  const Graph graph = unet(5, 3, 1 << 20);
  const auto plans = plan_budgets(graph);
  check_pareto(graph, plans);
  const uint64_t plain = plans.front().peak;
  const auto half = plan_budget(graph, plain / 2);
  REQUIRE(half);
  CHECK(overhead(graph, *half) < 0.12);
  CHECK(plans.back().peak < plain * 2 / 5);
  CHECK(plan_memory(graph).peak < plain / 2);
}

TEST_CASE("recompute: plan_memory grows with the square root of the depth") {
  uint64_t before = 0;
  for (const uint32_t records : {64u, 256u, 1024u, 4096u}) {
    const Graph graph = uniform_chain(records, 1);
    const Plan plan = plan_memory(graph);
    CHECK(depth(plan) == 1);
    CHECK(evaluate(graph, plan).replayed < records);
    CHECK(static_cast<double>(plan.peak) < 1.7 * std::sqrt(records) + 4);
    if (before) CHECK(plan.peak < before * 5 / 2);
    before = plan.peak;
  }
}

TEST_CASE("recompute: nested plans grow with the logarithm of the depth") {
  for (const uint32_t records : {128u, 512u, 2048u}) {
    CAPTURE(records);
    const Graph graph = uniform_chain(records, 1);
    const double levels = std::log2(records);
    const PlanCost halved = evaluate(graph, nested_halving(records, 2));
    CHECK(static_cast<double>(halved.peak) <= levels + 4);
    CHECK(halved.cost <= levels * records);
    const auto plans = plan_budgets(graph);
    check_pareto(graph, plans);
    const auto plan = cheapest_within(plans, static_cast<uint64_t>(2 * levels));
    REQUIRE(plan);
    CHECK(plan->cost <= levels / 2 * records);
  }
}

TEST_CASE("recompute: nested halving covers all records down to its leaves") {
  const Plan plan = nested_halving(10, 3);
  const auto is = [&](size_t i, uint32_t first, uint32_t last, int32_t parent) {
    const auto& s = plan.segments[i];
    return s.first == first && s.last == last && s.parent == parent;
  };
  REQUIRE(plan.segments.size() == 6);
  CHECK((is(0, 0, 5, -1) && is(1, 0, 3, 0) && is(2, 3, 5, 0)));
  CHECK((is(3, 5, 10, -1) && is(4, 5, 8, 3) && is(5, 8, 10, 3)));
  CHECK(nested_halving(3, 3).segments.empty());
  CHECK(nested_halving(0, 1).segments.empty());
}

TEST_CASE("recompute: 40000 records on 100000 floats inside 64 MB") {
  const Graph graph = uniform_chain(40'000, 400'000);
  const auto plan = plan_budget(graph, 64'000'000);
  REQUIRE(plan);
  CHECK(plan->peak <= 64'000'000);
  CHECK(plan->cost < 2 * forward_cost(graph));
}

TEST_CASE("recompute: any graph can be planned") {
  std::mt19937 random(2);
  for (uint32_t i = 0; i < 60; ++i) {
    const Graph graph = random_dag(i, random);
    const auto plans = plan_budgets(graph, 8);
    check_pareto(graph, plans);
    CHECK(plans.size() <= 8);
    CHECK(plan_memory(graph).peak <= plans.front().peak);
    const Plan speed = plan_speed(graph, [](uint32_t record) { return record % 3 == 0; });
    CHECK(evaluate(graph, speed).peak == speed.peak);
    if (const auto plan = plan_budget(graph, plans.front().peak * 3 / 4))
      CHECK(plan->peak <= plans.front().peak * 3 / 4);
  }
}

TEST_SUITE_END();

}  // namespace rw::test
