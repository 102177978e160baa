// The costs of plans of the recompute planner, for networks that are recorded dry, as the yardstick
// for a change of the planner or of its constants (planner/graph/tuning.h). Peaks and costs are the
// planner's own (evaluate()), so a run takes a minute and needs no device.
#include <fmt/format.h>

#include <chrono>

#include "benchmarks/bench/bench.h"
#include "benchmarks/memory/measure.h"
#include "benchmarks/memory/workloads.h"
#include "benchmarks/memory/workloads_sequence.h"
#include "planner/graph/evaluate.h"
#include "planner/search/plans.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

using namespace rw::memory;

using Clock = std::chrono::steady_clock;

struct PlannedNetwork {
  const char* name;
  Workload workload;
};

std::vector<PlannedNetwork> planned_networks() {
  return {{"resnet50", resnet50_workload(184, DType::f32)},
          {"bert-base-264", bert_workload({.preset = "base", .batch = 264})},
          {"bert-base-704", bert_workload({.preset = "base", .batch = 704})},
          {"bert-large-84", bert_workload({.preset = "large", .batch = 84})},
          {"cifar-k19", cifar_workload(19, 1280, false, DType::f32)},
          {"cifar-k20-bn", cifar_workload(20, 128, true, DType::f32)},
          {"resnet1001", resnet1001_workload(32, DType::f32)},
          {"wavenet", wavenet_workload()},
          {"seq2seq", seq2seq_workload()}};
}

void measure_plans(const PlannedNetwork& network, const Profile& profile,
                   const std::vector<double>& shares, const AutoRecomputeOptions& objective) {
  const Search search(
      profile.open, [&] { network.workload.run(); }, objective);
  const StagedGraph staged = search.graph();
  const Graph& graph = staged.graph();
  double forward = 0;
  for (const Graph::Record& r : graph.records) forward += r.cost;
  const auto plain = static_cast<double>(evaluate(graph, {}).peak);
  const auto text = [&](const Plan& plan) {  // of forward and backward, which is twice that
    return fmt::format("{:.2f}", 100 * plan.cost / (3 * forward));
  };
  const auto start = Clock::now();
  fmt::print("| {} |", network.name);
  for (const double share : shares) {
    const auto plan = plan_budget(staged, static_cast<uint64_t>(share * plain));
    fmt::print(" {} |", plan ? text(*plan) : "-");
  }
  const Plan least = plan_budgets(staged).back(), memory = plan_memory(staged);
  for (const Plan& plan : {least, memory})
    fmt::print(" {:.4f} at {} |", static_cast<double>(plan.peak) / plain, text(plan));
  fmt::print(" {:.1f} |\n", std::chrono::duration<double>(Clock::now() - start).count());
  std::fflush(stdout);
}

}  // namespace

Run plan_costs(CLI::App& app) {
  app.description("The costs of plans, in % of a step, at shares of the plain peak.");
  struct Options {
    std::string profile = "rx7900xtx.json";
    std::vector<double> shares = {0.5, 0.33, 0.25, 0.2, 0.15, 0.1};
    AutoRecomputeOptions objective{.flops_per_byte = 2};
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--profile", o->profile)->capture_default_str();
  shared_option(app, "--share", o->shares)->check(CLI::Range(0.0, 1.0));
  app.add_option("--flops-per-byte", o->objective.flops_per_byte, "the cost of memory traffic")
      ->capture_default_str();
  return [o] {
    fmt::print("| network |");
    for (const double share : o->shares) fmt::print(" {} |", share);
    fmt::print(" least | plan_memory | seconds |\n|---|");
    for (size_t k = 0; k < o->shares.size() + 3; ++k) fmt::print("---|");
    fmt::print("\n");
    for (const PlannedNetwork& network : planned_networks())
      measure_plans(network, open_profile(o->profile), o->shares, o->objective);
  };
}

}  // namespace rw::bench
