// Recomputation that the tape sets by itself: plans and eviction give the bits of the plain run.
#include <cmath>
#include <map>

#include "planner/follow/follower.h"
#include "planner/follow/memory_budget.h"
#include "planner/graph/evaluate.h"
#include "planner/search/plans.h"
#include "planner/search/search.h"
#include "planner/search/speed.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/random_program.h"
#include "tests/fixtures/recompute_graphs.h"

namespace rw::test {

namespace {

using Results = std::vector<std::vector<float>>;

// Returns the loss and gradients of a random program.
Results run_seed(uint32_t seed, std::vector<Tensor>& leaves) {
  manual_seed(seed);
  Results results;
  {
    const Tensor loss = Program(seed, false, leaves).run().first;
    results.push_back(loss.to_vector());
    loss.backward({}, seed % 3 == 2);
    if (seed % 3 == 2) loss.backward();
  }
  for (Tensor& t : leaves) {
    results.push_back(t.grad().defined() ? t.grad().to_vector() : std::vector<float>());
    t.set_grad({});
  }
  return results;
}

// The same under `recompute`.
Results run_seed(uint32_t seed, std::vector<Tensor>& leaves, const Plan& recompute,
                 Graph* record = nullptr) {
  const PlanFollower scope(recompute, record);
  return run_seed(seed, leaves);
}

// Returns every possible plan for a random program.
std::vector<Plan> plans_for(const Graph& recorded) {
  std::vector<Plan> plans = plan_budgets(recorded, 4);
  plans.push_back(plan_memory(recorded));
  plans.push_back(
      plan_speed(recorded, [&](uint32_t r) { return recorded.records[r].label == "matmul"; }));
  plans.push_back(nested_halving(static_cast<uint32_t>(recorded.records.size()), 2));
  return plans;
}

void check_plans(uint32_t count) {
  std::vector<Tensor> leaves = program_leaves();
  const uint64_t at_rest = default_device()->live();
  for (uint32_t seed = 0; seed < count; ++seed) {
    INFO("seed " << seed);
    Graph recorded;
    const Results plain = run_seed(seed, leaves, {});
    REQUIRE(run_seed(seed, leaves, {}, &recorded) == plain);
    for (const Plan& plan : plans_for(recorded)) {
      REQUIRE(run_seed(seed, leaves, follow(recorded, plan)) == plain);
      REQUIRE(default_device()->live() == at_rest);
      REQUIRE(Tape::current()->stats().records == 0);
    }
    REQUIRE(run_seed(seed, leaves, {.evicts = true}) == plain);
    REQUIRE(default_device()->live() == at_rest);
  }
}

// A chain of layers with a matrix product each: [rows, width] -> the same.
struct LayerChain {
  int64_t rows = 64, width = 16;
  int layers = 24;

  void operator()() const {
    std::vector<Tensor> weights;
    for (int i = 0; i < layers; ++i) weights.push_back(randn({width, width}).set_requires_grad());
    const Tensor x = randn({rows, width});
    for (int step = 0; step < 2; ++step) {
      Tensor y = x;
      for (const Tensor& w : weights) y = add(gelu(matmul(y, w)), y);
      mean(square(std::move(y))).backward();
      for (Tensor& w : weights) w.set_grad({});
      default_device()->end_step();
    }
  }
};

Search search_chain(const LayerChain& chain) {
  return Search([] { return open_backend("dry:reference"); }, chain, {.candidates = 12});
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "recompute: plans and eviction give the plain run's bits" *
                                 doctest::test_suite("host")) {
  check_plans(rounds(12, 60));
}

TEST_CASE("recompute: on vulkan") {
  try {
    set_default_device(open_backend("vulkan"));
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  check_plans(4);
}

TEST_CASE("recompute: choices trade memory for work, and a budget never raises the peak" *
          doctest::test_suite("host")) {
  Search search = search_chain({});
  const auto& choices = search.candidates();
  REQUIRE(choices.size() >= 4);
  CHECK(choices.front().peak() <= search.plain().peak());
  CHECK(choices.front().cost == 0);
  for (size_t i = 1; i < choices.size(); ++i) {
    CHECK(choices[i].peak() < choices[i - 1].peak());
    CHECK(choices[i].cost > choices[i - 1].cost);
  }
  uint64_t last = UINT64_MAX;
  const uint64_t least = choices.back().peak();
  for (uint64_t bytes = search.plain().peak() + 512; bytes >= least; bytes -= 512) {
    const Candidate& choice = search.budget(bytes);
    REQUIRE(choice.peak() <= bytes);
    REQUIRE(choice.peak() <= last);
    last = choice.peak();
  }
  CHECK(least < search.plain().peak() / 2);
  const uint64_t known =
      search.candidates().back().peak();  // a budget may have found a smaller one
  const std::string message = message_of<OutOfMemory>([&] { search.budget(known - 1); });
  CHECK(contains(message, fmt::format("({} bytes)", known)));
  CHECK(search.measured(nested_halving(static_cast<uint32_t>(search.graph().records.size()), 8))
            .peak() < search.plain().peak());
  // Real runs reach the predicted peak to the byte.
  for (const Candidate& choice : choices) {
    const auto device = set_default_device(open_backend("reference"));
    const PlanFollower scope(choice.plan);
    LayerChain{}();
    CHECK(device->memory_report().peak == choice.peak());
    CHECK(device->work()[static_cast<int>(Phase::replay)].flops ==
          choice.forecast.work[static_cast<int>(Phase::replay)].flops);
  }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "recompute: on random programs, a smaller budget never raises the peak" *
                      doctest::test_suite("host")) {
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(rounds(3, 12)); ++seed) {
    INFO("seed " << seed);
    const auto program = [seed] {
      std::vector<Tensor> leaves = program_leaves();
      run_seed(seed, leaves);
    };
    Search search([] { return open_backend("dry:reference"); }, program, {.candidates = 8});
    const uint64_t least = search.candidates().back().peak();
    uint64_t last = UINT64_MAX;
    double cost = 0;
    for (uint64_t bytes = search.plain().peak() + 256; bytes >= least; bytes -= 256) {
      const Candidate& choice = search.budget(bytes);
      REQUIRE(choice.peak() <= bytes);
      REQUIRE(choice.peak() <= last);
      REQUIRE(choice.cost >= cost);
      last = choice.peak();
      cost = choice.cost;
    }
    REQUIRE_THROWS_AS(search.budget(search.candidates().back().peak() - 1), OutOfMemory);
  }
}

TEST_CASE("recompute: collections keep what they name" * doctest::test_suite("host")) {
  Search search = search_chain({.layers = 40});
  const Candidate gelus = search.collection(save_ops({"gelu"}));
  const Candidate nothing = search.collection([](const SaveQuery&) { return false; });
  const Candidate all = search.collection([](const SaveQuery& q) { return q.bytes > 0; });
  CHECK(gelus.peak() < search.plain().peak());
  CHECK(gelus.forecast.recompute_share() > 0);
  CHECK(all.forecast.recompute_share() == 0);
  CHECK(all.peak() == search.plain().peak());
  // A single segment of everything saves nothing, so the plan is the plain one.
  CHECK(nothing.peak() == search.plain().peak());
  CHECK(nothing.cost == 0);
  CHECK(search.speed().forecast.recompute_share() == 0);
}

TEST_CASE("recompute: memory runs every op at most twice, speed keeps matrix products" *
          doctest::test_suite("host")) {
  Search search = search_chain({.layers = 100});
  const Candidate memory = search.memory(), speed = search.speed();
  CHECK(memory.peak() < search.plain().peak() / 3);
  CHECK(memory.forecast.recompute_share() <= 0.34);
  CHECK(speed.peak() < search.plain().peak());
  CHECK(speed.forecast.recompute_share() == 0);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "recompute: eviction stays within every budget, or says that it cannot" *
                      doctest::test_suite("host")) {
  std::vector<Tensor> leaves = program_leaves();
  for (const uint32_t seed : {0u, 2u, 3u, 10u, 21u}) {
    INFO("seed " << seed);
    const Results plain = run_seed(seed, leaves, {});
    device->reset_peak();
    run_seed(seed, leaves, {});
    const uint64_t at_rest = live(), peak = device->memory_report().peak;
    int fitted = 0;
    for (uint64_t budget = peak; budget > at_rest; budget -= 256) {
      INFO("budget " << budget);
      device->reset_peak();
      try {
        const MemoryBudget limit(budget);
        const Results evicted = run_seed(seed, leaves, {.evicts = true});
        REQUIRE(evicted == plain);
        ++fitted;
      } catch (const OutOfMemory& e) {
        REQUIRE(contains(e.what(), "memory budget"));
        for (Tensor& t : leaves) t.set_grad({});
      }
      REQUIRE(device->memory_report().peak <= budget);
      REQUIRE(live() == at_rest);
      REQUIRE(tape().stats().records == 0);
    }
    CHECK(fitted > 1);
  }
  CHECK(tape().evictions() > 0);
}

TEST_CASE("recompute: one output of several is kept, and the others are dropped" *
          doctest::test_suite("host")) {
  const auto program = [] {
    const Tensor w = full({64}, 0.5f).set_requires_grad();
    sum(tanh(layer_norm(ones({256, 64}) + w, w, w))).backward();
  };
  const auto dry = [] { return open_backend("dry:reference"); };
  Search search(dry, program);
  const Graph& recorded = search.graph();
  const auto norm = std::find_if(recorded.records.begin(), recorded.records.end(),
                                 [](const auto& record) { return record.op == "layer_norm"; });
  REQUIRE(norm != recorded.records.end());
  const auto& outputs = norm->outputs;
  REQUIRE(outputs.size() == 2);
  const auto last = static_cast<uint32_t>(recorded.records.size());
  uint64_t held[2], saved[2], bytes[2];
  for (const size_t kept : {0, 1}) {
    const Plan plan{.segments = {{0, last - 1, -1}}, .keep = {recorded.output(outputs[kept])}};
    const Plan recompute = follow(recorded, plan);
    REQUIRE(recompute.keep.size() == 1);
    CHECK(recompute.keep[0].slot == kept);
    held[kept] = evaluate(recorded, plan).held;
    bytes[kept] = recorded.values[outputs[kept]].bytes;
    dry_run(dry(), [&] {
      const Tensor w = full({64}, 0.5f).set_requires_grad();
      const PlanFollower scope(recompute);
      const Tensor loss = sum(tanh(layer_norm(ones({256, 64}) + w, w, w)));
      saved[kept] = Tape::current()->stats().saved_bytes;
    });
  }
  REQUIRE(bytes[0] > bytes[1]);
  CHECK(saved[0] - saved[1] == bytes[0] - bytes[1]);
  CHECK(held[0] - held[1] == bytes[0] - bytes[1]);
}

TEST_CASE_FIXTURE(CpuDevice, "recompute: values that a replay keeps for segments inside" *
                                 doctest::test_suite("host")) {
  constexpr int depth = 24;
  std::vector<float> plain;
  uint64_t predicted_saving = 0;
  const auto dry = [] { return open_backend("dry:reference"); };
  const auto program = [](std::vector<float>* gradient) {
    const Tensor w = full({16, 16}, 0.05f).set_requires_grad();
    Tensor x = full({8, 16}, 0.5f);
    for (int i = 0; i < depth; ++i) x = tanh(matmul(x, w));
    sum(x).backward();
    if (gradient) *gradient = w.grad().to_vector();
  };
  Search search(dry, [&] { program(nullptr); });
  const Graph& graph = search.graph();
  const auto last = static_cast<uint32_t>(graph.records.size()) - 2;
  std::mt19937 random(3);
  program(&plain);
  for (int k = 0; k < 40; ++k) {
    INFO("plan " << k);
    Plan plan{.segments = {{0, last, -1}}};
    for (uint32_t first = random() % 4; first + 6 < last;) {  // two levels of segments inside
      const auto end = first + 4 + static_cast<uint32_t>(random() % 8);
      if (end >= last) break;
      const auto outer = static_cast<int32_t>(plan.segments.size());
      plan.segments.push_back({first, end, 0});
      if (end - first > 4) plan.segments.push_back({first + 1, end - 1, outer});
      for (uint32_t r = first; r < end; ++r)
        if (random() % 3 == 0)
          for (const uint32_t v : graph.records[r].outputs) plan.keep.push_back(graph.output(v, 0));
      first = end + static_cast<uint32_t>(random() % 3);
    }
    Plan without = plan;
    without.keep.clear();
    fill_in(graph, plan);
    fill_in(graph, without);
    predicted_saving += plan.cost < without.cost;
    const Plan recompute = follow(graph, plan);
    const uint64_t before = Tape::current()->replayed_records();
    std::vector<float> gradient;
    const uint64_t at_rest = default_device()->live();
    {
      const PlanFollower scope(recompute);
      program(&gradient);
    }
    CHECK(gradient == plain);
    CHECK(default_device()->live() == at_rest);
    CHECK(Tape::current()->replayed_records() - before == evaluate(graph, plan).replayed);
    // The peak is the simulated one, except for an op that overwrites, of which plans know nothing.
    constexpr int64_t value = 8 * 16 * sizeof(float);
    const auto peak = [&](const Plan& way) {
      return dry_run(dry(),
                     [&] {
                       const PlanFollower scope(way);
                       program(nullptr);
                     })
          .memory.peak;
    };
    const auto unknown = [&](const Plan& way) {
      return static_cast<int64_t>(peak(follow(graph, way))) - static_cast<int64_t>(way.peak);
    };
    CHECK(std::abs(unknown(plan) - unknown(without)) <= 2 * value);
  }
  CHECK(predicted_saving > 20);
}

TEST_CASE("recompute: the search and eviction against the best of all plans" *
          doctest::test_suite("host")) {
  // Six records of different sizes and costs.
  const std::vector<int64_t> widths = {48, 8, 96, 24};
  const auto program = [&] {
    std::vector<Tensor> weights;
    for (size_t i = 0; i + 1 < widths.size(); ++i)
      weights.push_back(full({widths[i], widths[i + 1]}, 0.1f).set_requires_grad());
    const auto forward = [&] {
      const Tensor x = full({64, widths[0]}, 0.5f);
      const Tensor a = relu(matmul(x, weights[0]));
      return mean(matmul(relu(matmul(a, weights[1])), weights[2]));
    };
    forward().backward();
  };
  const auto under = [&](const Plan& recompute) {
    return [&] {
      const PlanFollower scope(recompute);
      program();
    };
  };
  const auto dry = [] { return open_backend("dry:reference"); };
  Search search(dry, program);
  const auto records = static_cast<uint32_t>(search.graph().records.size());
  REQUIRE(records == 6);
  std::map<uint64_t, double> best;  // peak -> least cost
  int plans = 0;
  Plan recompute = follow(search.graph(), {});
  for_each_forest(0, records, -1, false, recompute.segments, [&] {
    ++plans;
    const Candidate choice{recompute, dry_run(dry(), under(recompute))};
    const double cost = AutoRecomputeOptions{}.cost(choice.replay());
    const auto [found, is_new] = best.emplace(choice.peak(), cost);
    found->second = std::min(found->second, cost);
  });
  const auto optimum = [&](uint64_t bytes) {
    double least = INFINITY;
    for (const auto& [peak, cost] : best)
      if (peak <= bytes) least = std::min(least, cost);
    return least;
  };
  const uint64_t least = best.begin()->first;
  CHECK(static_cast<double>(search.candidates().back().peak()) <=
        1.06 * static_cast<double>(least));
  double worst_search = 1, worst_eviction = 1;
  int evicted = 0, infeasible = 0;
  for (const auto& [bytes, cost] : best) {
    const double best_cost = optimum(bytes);
    if (bytes >= search.candidates().back().peak()) {
      const double searched = search.budget(bytes).cost;
      CHECK(searched <= 1.5 * best_cost);
      if (best_cost > 0) worst_search = std::max(worst_search, searched / best_cost);
    }
    try {
      Candidate choice{{.evicts = true}, dry_run(dry(), [&] {
                         const MemoryBudget budget(bytes);
                         under({.evicts = true})();
                       })};
      CHECK(choice.peak() <= bytes);
      const double evicting = AutoRecomputeOptions{}.cost(choice.replay());
      CHECK(evicting <= 3 * best_cost);
      if (best_cost > 0) worst_eviction = std::max(worst_eviction, evicting / best_cost);
      ++evicted;
    } catch (const OutOfMemory&) {
      ++infeasible;
    }
  }
  MESSAGE(plans << " plans; cost over the optimum at most: search " << worst_search << ", eviction "
                << worst_eviction << " (" << evicted << " budgets, " << infeasible << " refused)");
  CHECK(evicted > infeasible);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "recompute: 1000 layers halved again and again need memory like the logarithm" *
                      doctest::test_suite("host")) {
  const Tensor x = leaf(1024);
  const std::function<Tensor(Tensor, int)> layers = [&](Tensor y, int n) -> Tensor {
    if (n == 1) return tanh(std::move(y));
    {
      const auto scope = checkpoint();
      y = layers(std::move(y), n / 2);
    }
    const auto scope = checkpoint();
    return layers(std::move(y), n - n / 2);
  };
  const auto peak_of = [&](int n) {
    device->reset_peak();
    const uint64_t before = live();
    sum(layers(x, n)).backward();
    Tensor(x).set_grad({});
    return static_cast<double>(device->memory_report().peak - before) / 4096;
  };
  const double small = peak_of(125), middle = peak_of(250), large = peak_of(500),
               largest = peak_of(1000);
  MESSAGE("peak in activations: " << small << ", " << middle << ", " << large << ", " << largest);
  CHECK(largest < 20);
  // Every doubling adds the same.
  CHECK(middle - small <= 2);
  CHECK(large - middle <= 2);
  CHECK(largest - large <= 2);
}

TEST_CASE_FIXTURE(CpuDevice, "recompute: a long chain runs in a small budget by eviction" *
                                 doctest::test_suite("host")) {
  LayerChain chain{.rows = 256, .layers = 60};
  device->reset_peak();
  chain();
  const uint64_t plain = device->memory_report().peak;
  const uint64_t replayed = tape().replayed_records();
  device->reset_peak();
  const MemoryBudget limit(plain / 3);
  {
    const PlanFollower evicting({.evicts = true});
    chain();
  }
  CHECK(device->memory_report().peak <= plain / 3);
  const uint64_t again = tape().replayed_records() - replayed;
  MESSAGE("records run again: " << again << " of " << 2 * 3 * 60 + 2 * 2);
  CHECK(again < 4 * 2 * 3 * 60);
}

TEST_CASE_FIXTURE(CpuDevice, "recompute: eviction drops nothing that another handle keeps" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(64);
  const PlanFollower scope({.evicts = true});
  Tensor y = exp(x);
  const Tensor loss = sum(square(y));
  CHECK_FALSE(tape().evict(1));
  y = {};
  CHECK(tape().evict(1));
  CHECK_FALSE(tape().evict(1));  // nothing is left to evict
  loss.backward();
  for (size_t i = 0; i < 64; ++i)
    CHECK(x.grad().to_vector()[i] == doctest::Approx(2 * std::exp(2 * x.to_vector()[i])));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "recompute: another program than planned keeps its values, or evicts them" *
                      doctest::test_suite("host")) {
  Search search = search_chain({});
  const Plan recompute = search.memory().plan;
  const Tensor x = leaf(64);
  const auto gradient = [&](const Plan& how) {
    Tensor loss;
    {
      const PlanFollower scope(how);
      Tensor y = reshape(x, {4, 16});
      for (int i = 0; i < 8; ++i) y = tanh(y * 0.5f);
      loss = sum(y);
      CHECK(scope.diverged() == !how.segments.empty());
    }
    loss.backward();
    const auto values = x.grad().to_vector();
    Tensor(x).set_grad({});
    return values;
  };
  CHECK(gradient(recompute) == gradient({}));
  const MemoryBudget limit(64 * 4 * 12);
  CHECK(gradient(recompute) == gradient({}));
}

}  // namespace rw::test
