// Values that plans keep in 8 bits: the planner's choice between them and recomputation, and passes
// that follow such plans: exact losses, exact replays, gradients within the bound, and the bytes of
// the forecast.
#include <cmath>

#include "core/autograd/tape.h"
#include "planner/auto_recompute.h"
#include "planner/forecast/savings.h"
#include "planner/graph/evaluate.h"
#include "planner/search/plans.h"
#include "planner/search/search.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/recompute_graphs.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

// Every value of 10 bytes takes 3 in 8 bits.
Graph with_8_bits(Graph graph, double cost_per_byte) {
  for (Graph::Value& value : graph.values)
    if (value.record >= 0) value.quantized = 3;
  graph.byte_cost = cost_per_byte;
  return graph;
}

constexpr int64_t layer_rows = 256, layer_width = 32;

// The losses and the gradients of two steps of a chain of layers.
struct LayerOutcome {
  std::vector<float> losses;
  std::vector<std::vector<float>> gradients;  // of the first step, then of the second
};

LayerOutcome train_layers(int layers = 10) {
  manual_seed(1);
  std::vector<Tensor> weights;
  for (int i = 0; i < layers; ++i)
    weights.push_back((randn({layer_width, layer_width}) * 0.15f).detach().set_requires_grad());
  const Tensor x = randn({layer_rows, layer_width});
  LayerOutcome outcome;
  for (int step = 0; step < 2; ++step) {
    Tensor y = x;
    for (const Tensor& w : weights) y = add(relu(matmul(y, w)), y);
    const Tensor loss = mean(square(std::move(y)));
    loss.backward();
    outcome.losses.push_back(loss.item());
    for (Tensor& w : weights) {
      outcome.gradients.push_back(w.grad().to_vector());
      w.set_grad({});
    }
    default_device()->end_step();
  }
  return outcome;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& exact) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(a[i] - exact[i], 2);
    size += std::pow(exact[i], 2);
  }
  return std::sqrt(error / size);
}

Search search_8_bits(bool keep_8_bits) {
  return Search([] { return open_backend("dry:cpu"); }, [] { train_layers(); },
                {.candidates = 16, .keep_8_bits = keep_8_bits});
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("8 bits: simulation of a chain of outputs") {
  const Graph graph = with_8_bits(uniform_chain(6, 10), 0.1);
  const Plan::Offload first{0, 0, 1, true}, second{1, 0, 2, true};
  const PlanCost one = evaluate(graph, {.offloads = {first}});
  CHECK(one.held == 53);
  CHECK(one.in_8_bits == 10);
  CHECK(one.offloaded == 0);
  CHECK(one.cost == doctest::Approx(2 * 0.1 * 13));
  CHECK(one.replayed == 0);
  CHECK(evaluate(graph, {.offloads = {first, second}}).held == 46);
  CHECK(plan_text({.in_8_bits = one.in_8_bits << 20}) == "recomputation, 10.00 MiB in 8 bits");
  // The forward pass ends with 39 bytes and the last value; a vjp has its value and two gradients.
  Plan all;
  for (uint32_t i = 0; i < 5; ++i) all.offloads.push_back({i, 0, i + 1, true});
  CHECK(evaluate(graph, all).peak == 5 * 3 + 10 + 20);
  // Nobody may change what a replay makes or reads, nor what is not allowed.
  for (const Plan::Segment segment : {Plan::Segment{0, 1}, Plan::Segment{1, 2}}) {
    const PlanCost replayed = evaluate(graph, {.segments = {segment}, .offloads = {first}});
    CHECK(replayed.in_8_bits == 0);
    CHECK(replayed.offloads.empty());
  }
  CHECK(evaluate(uniform_chain(6, 10), {.offloads = {first}}).in_8_bits == 0);
  Graph exact = graph;
  exact.values[1].quantized = 0;  // that record 0 makes; value 0 is external
  CHECK(evaluate(exact, {.offloads = {first}}).in_8_bits == 0);
}

TEST_CASE(
    "8 bits: where they are cheap, less is recomputed; where they are dear, nothing changes") {
  const Graph graph = uniform_chain(40, 10);
  for (const uint64_t bytes : {300, 200}) {
    const auto alone = plan_budget(graph, bytes);
    const auto cheap = plan_budget(with_8_bits(graph, 0.001), bytes);
    const auto dear = plan_budget(with_8_bits(graph, 10), bytes);
    REQUIRE((alone && cheap && dear));
    CHECK(cheap->peak <= bytes);
    CHECK(cheap->in_8_bits > 0);
    CHECK(cheap->cost < 0.5 * alone->cost);
    CHECK(dear->in_8_bits == 0);
    CHECK(dear->cost == alone->cost);
  }
  CHECK(plan_memory(with_8_bits(graph, 0.001)).peak <= plan_memory(graph).peak);
}

TEST_CASE(
    "8 bits: passes have the plain run's losses, its gradients nearly, and the bytes predicted") {
  Search search = search_8_bits(true);
  set_default_device(open_backend("cpu"));
  const LayerOutcome plain = train_layers();
  size_t packing = 0, both = 0;
  for (const Candidate& choice : search.candidates()) {
    const auto device = set_default_device(open_backend("cpu"));
    Tape::current()->verify_replay(true);  // replays have the forward pass's bits all the same
    const PlanFollower scope(choice.plan);
    const LayerOutcome outcome = train_layers();
    Tape::current()->verify_replay(false);
    CHECK(outcome.losses == plain.losses);
    CHECK(device->memory_report().peak == choice.peak());
    CHECK(replay_cost(device->work()).bytes == choice.replay().bytes);
    double error = 0;
    for (size_t i = 0; i < plain.gradients.size(); ++i)
      error = std::max(error, relative_error(outcome.gradients[i], plain.gradients[i]));
    CHECK((error > 0) == (choice.plan.in_8_bits > 0));
    CHECK(error < 0.01);
    packing += choice.plan.in_8_bits > 0;
    both += choice.plan.in_8_bits > 0 && !choice.plan.segments.empty();
  }
  CHECK(packing > 2);
  CHECK(both > 0);
}

TEST_CASE("8 bits: only where they are allowed") {
  Search allowed = search_8_bits(true), alone = search_8_bits(false);
  for (const Candidate& choice : alone.candidates()) CHECK(choice.plan.offloads.empty());
  CHECK(allowed.memory().plan.offloads.empty());
  CHECK(allowed.speed().plan.offloads.empty());
  // Every candidate of recomputation alone has one on or below it.
  size_t below = 0;
  for (const Candidate& choice : alone.candidates()) {
    double cost = INFINITY;
    for (const Candidate& other : allowed.candidates())
      if (other.peak() <= choice.peak()) cost = std::min(cost, other.cost);
    CHECK(cost <= choice.cost);
    below += cost < choice.cost;
  }
  CHECK(below > 0);
  CHECK_THROWS_AS(AutoRecompute({.mode = AutoRecomputeOptions::Mode::memory, .keep_8_bits = true}),
                  ValueError);
}

TEST_CASE("8 bits: the error of a product's gradient is within the bound") {
  set_default_device(open_backend("cpu"));
  const Tensor x = tensor(some_values(layer_rows * layer_width, 1), {layer_rows, layer_width})
                       .set_requires_grad();
  const Tensor w = tensor(some_values(layer_width * layer_width, 2), {layer_width, layer_width})
                       .set_requires_grad();
  const Tensor dy = tensor(some_values(layer_rows * layer_width, 3), {layer_rows, layer_width});
  const auto gradient = [&](const Plan& plan, Graph* graph) {
    const PlanFollower scope(plan, graph);
    matmul(tanh(x), w).backward(dy);
    std::vector<float> dw = w.grad().to_vector();
    w.impl().grad = {};
    return dw;
  };
  Graph graph;
  const std::vector<float> exact = gradient({}, &graph);
  REQUIRE(graph.records.size() == 2);
  const std::vector<float> near = gradient(follow(graph, {.offloads = {{0, 0, 1, true}}}), nullptr);
  const std::vector<float> h = tanh(x).detach().to_vector(), g = dy.to_vector();
  std::vector<double> half_steps(h.size() / 128);
  for (size_t i = 0; i < h.size(); ++i)
    half_steps[i / 128] = std::max(half_steps[i / 128], std::fabs(h[i]) / 254.0);
  double most = 0;
  for (int64_t k = 0; k < layer_width; ++k)
    for (int64_t j = 0; j < layer_width; ++j) {
      double bound = 1e-4;
      for (int64_t i = 0; i < layer_rows; ++i)
        bound += half_steps[static_cast<size_t>(i * layer_width + k) / 128] *
                 std::fabs(g[static_cast<size_t>(i * layer_width + j)]);
      const auto at = static_cast<size_t>(k * layer_width + j);
      const double error = std::fabs(near[at] - exact[at]);
      CHECK(error <= bound);
      most = std::max(most, error);
    }
  CHECK(most > 1e-3);  // it was packed
}

TEST_CASE("8 bits: what the program holds, or a gradient needs exactly, stays as it is") {
  set_default_device(open_backend("cpu"));
  const Tensor x = tensor(some_values(layer_rows * layer_width, 1), {layer_rows, layer_width})
                       .set_requires_grad();
  Graph graph;
  for (const bool packs : {false, true}) {
    const PlanFollower scope(packs ? follow(graph, {.offloads = {{0, 0, 1, true}}}) : Plan{},
                             packs ? nullptr : &graph);
    Tensor h = tanh(x);
    const std::vector<float> before = h.to_vector();
    const Tensor held = h.detach();
    sum(square(std::move(h)) * 2.0f).backward();
    CHECK(held.to_vector() == before);
    x.impl().grad = {};
  }
  CHECK(graph.values[graph.records[0].outputs[0]].quantized > 0);
  // clamp decides by the value whether there is a gradient.
  graph = {};
  {
    const PlanFollower scope(Plan{}, &graph);
    sum(clamp(tanh(x), -0.5f, 0.5f)).backward();
  }
  REQUIRE(graph.records.size() == 3);
  CHECK(graph.values[graph.records[0].outputs[0]].quantized == 0);
  const std::vector<float> exact = x.grad().to_vector();
  x.impl().grad = {};
  const PlanFollower scope(follow(graph, {.offloads = {{0, 0, 1, true}}}));
  sum(clamp(tanh(x), -0.5f, 0.5f)).backward();
  CHECK(x.grad().to_vector() == exact);
}

TEST_CASE("8 bits: AutoRecompute keeps a loop within its budget") {
  set_default_device(open_backend("cpu"));
  const LayerOutcome plain = train_layers();
  const uint64_t budget = default_device()->memory_report().peak / 2;
  const auto device = set_default_device(open_backend("cpu"));
  const AutoRecompute recompute({.budget = budget, .keep_8_bits = true});
  const LayerOutcome outcome = train_layers();
  CHECK(outcome.losses == plain.losses);
  CHECK(device->memory_report().peak_reserved <= budget);
  REQUIRE(recompute.kinds().size() == 1);
  CHECK(contains(recompute.kinds()[0], "planned"));
  CHECK(!contains(recompute.kinds()[0], " 0 to 8 bits"));
}

TEST_SUITE_END();

}  // namespace rw::test
