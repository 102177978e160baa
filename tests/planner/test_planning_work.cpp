// The work of finding a recomputation plan is counted, bounded, and the same in every run.
#include "benchmarks/memory/workloads.h"
#include "benchmarks/memory/workloads_sequence.h"
#include "planner/auto_recompute.h"
#include "planner/graph/evaluate.h"
#include "planner/search/cost_rows.h"
#include "planner/search/plans.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/recompute_graphs.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

Search search_workload(const memory::Workload& workload, const AutoRecomputeOptions& objective) {
  return Search([] { return open_backend("dry:reference"); }, [=] { workload.run(); }, objective);
}

struct Answer {
  uint64_t peak = 0, work = 0;
  double cost = 0;
  bool is_cut = false;
  std::vector<double> progress = {};
};

// Returns the answer for a budget at this share of the way from the least peak to the plain one.
Answer answer(const memory::Workload& workload, double share, double effort = 1) {
  Answer result;
  Search search = search_workload(workload, {.effort = effort, .on_progress = [&](double done) {
                                               result.progress.push_back(done);
                                             }});
  const uint64_t before = search.work(), least = search.candidates().back().peak();
  // Work over the limit is known only afterwards: a programme, and some dry runs.
  CHECK(search.work() - before <= search.work_limit() * 3 / 2);
  const auto room = static_cast<double>(search.plain().peak() - least);
  const uint64_t bytes = least + static_cast<uint64_t>(share * room);
  const uint64_t between = search.work();
  const Candidate choice = search.budget(bytes);
  CHECK(choice.peak() <= bytes);
  CHECK(search.work() - between <= search.work_limit() * 3 / 2);
  result.work = search.work() - before;
  result.peak = choice.peak();
  result.cost = choice.cost;
  result.is_cut = search.is_cut();
  return result;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cost rows: the least of several ways, as by looking at every number of units") {
  constexpr uint32_t units = 40;
  std::mt19937 random(11);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    CostStore store;
    std::vector<CostRow> rows = {CostStore::free, {}};
    std::vector<std::vector<float>> dense = {std::vector<float>(units + 1, 0.0f),
                                             std::vector<float>(units + 1, infeasible_cost)};
    for (int made = 0; made < 6; ++made) {
      CostDraft draft(units);
      std::vector<float> expected(units + 1, infeasible_cost);
      for (uint32_t way = below(5); way-- > 0;) {
        const size_t own = below(static_cast<uint32_t>(rows.size()));
        const size_t rest = below(static_cast<uint32_t>(rows.size()));
        const uint32_t hold = below(units / 2), first = std::max(hold, below(units + 4));
        const auto cost = static_cast<float>(below(8));
        draft.add(first, cost, rows[own], rows[rest], hold);
        for (uint32_t m = first; m <= units; ++m)
          expected[m] = std::min(expected[m], cost + dense[own][m] + dense[rest][m - hold]);
      }
      const size_t other = below(static_cast<uint32_t>(rows.size()));
      draft.add(rows[other]);
      for (uint32_t m = 0; m <= units; ++m) {
        expected[m] = std::min({expected[m], dense[other][m], infeasible_cost});
      }
      rows.push_back(store.add(draft));
      dense.push_back(expected);
      for (uint32_t m = 0; m <= units; ++m) REQUIRE(store.cost(rows.back(), m) == expected[m]);
    }
  }
}

TEST_CASE("planning work: what is counted is the same in every run, and within its limit") {
  const memory::Workload wavenet = memory::wavenet_workload({.batch = 1, .length = 128});
  const Answer first = answer(wavenet, 0.6), second = answer(wavenet, 0.6);
  CHECK(first.work == second.work);
  CHECK(first.peak == second.peak);
  CHECK(first.cost == second.cost);
  CHECK(first.progress == second.progress);
  // Progress goes up to the end, even if there was less to do than allowed.
  REQUIRE(first.progress.size() > 3);
  CHECK(first.progress.front() < 0.5);
  CHECK(first.progress.back() == 1);
  answer(memory::seq2seq_workload({.batch = 2, .width = 16}), 0.8);
  answer(memory::chain_workload(1500, 100), 0.1);
}

TEST_CASE("planning work: less effort plans coarser, and more never worse") {
  const memory::Workload chain = memory::chain_workload(600, 1000);
  const Answer little = answer(chain, 0.3, 0.2), usual = answer(chain, 0.3),
               much = answer(chain, 0.3, 100);
  CHECK(little.is_cut);
  CHECK(!much.is_cut);
  CHECK(2 * little.work < usual.work);
  CHECK(little.cost >= usual.cost);
  CHECK(usual.cost >= much.cost);
  CHECK(little.cost < 1.5 * much.cost);
}

TEST_CASE("planning work: a graph that is too much for what is allowed is planned with less") {
  const Graph graph = uniform_chain(3000, 1000);
  PlanWork all, some{.limit = 400'000'000};
  const auto fine = plan_budgets(graph, 16, &all), coarse = plan_budgets(graph, 16, &some);
  CHECK(!all.is_cut);
  CHECK(some.is_cut);
  CHECK(some.done < 2 * some.limit);
  CHECK(all.done > 2 * some.limit);
  // Plans for the least memory are found all the same.
  CHECK(static_cast<double>(coarse.back().peak) < 2 * static_cast<double>(fine.back().peak));
}

TEST_SUITE_END();

}  // namespace rw::test
