#include "planner/search/search.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "planner/follow/follower.h"
#include "planner/graph/evaluate.h"
#include "planner/search/plans.h"
#include "planner/search/speed.h"

namespace rw {

namespace {

// The work (planner/graph/plan_work.h) for one answer takes about a second on a 2 GHz Xeon. It
// bounds slower machines in the same way.
constexpr double answer_work = 1.3e9;
constexpr double records_for_answer = 2000;  // longer programs get more work, up to ten times as
                                             // much
constexpr double most_answer = 10;
constexpr uint64_t kernel_work = 2'000, run_work = 200'000;  // the work that a dry run counts as

uint64_t work_of(const WorkByPhase& work) {
  uint64_t calls = 0;
  for (const Work& phase : work) calls += phase.calls;
  return run_work + kernel_work * calls;
}

// Tells whether a plan was measured, since other costs often lead to the same plan.
bool is_among(const std::vector<Candidate>& candidates, const Plan& plan) {
  const auto is_range = [](const Plan::Segment& a, const Plan::Segment& b) {
    return a.first == b.first && a.last == b.last && a.parent == b.parent;
  };
  const auto is_value = [](const Plan::Output& a, const Plan::Output& b) {
    return a.record == b.record && a.slot == b.slot && a.replay == b.replay;
  };
  const auto is_offload = [](const Plan::Offload& a, const Plan::Offload& b) {
    return a.record == b.record && a.slot == b.slot && a.in_8_bits == b.in_8_bits;
  };
  return std::ranges::any_of(candidates, [&](const Candidate& candidate) {
    return std::ranges::equal(candidate.plan.segments, plan.segments, is_range) &&
           std::ranges::equal(candidate.plan.keep, plan.keep, is_value) &&
           std::ranges::equal(candidate.plan.offloads, plan.offloads, is_offload);
  });
}

// Tells whether costs differ by a factor only, so that they lead to the same plans.
bool is_proportional(const Graph& a, const Graph& b) {
  const auto sum = [](const Graph& graph) {
    double sum = 0;
    for (const Graph::Record& record : graph.records) sum += record.cost;
    return sum;
  };
  const double factor = sum(b) / sum(a);
  return std::ranges::equal(a.records, b.records, [&](const auto& one, const auto& other) {
    return std::abs(other.cost - factor * one.cost) <= 1e-9 * other.cost;
  });
}

}  // namespace

Search::Search(OpenDry open, Program program, const AutoRecomputeOptions& options)
    : open_(std::move(open)), program_(std::move(program)), options_(options) {
  measure(Plan{}, &graph_);
  prepare(nullptr);
}

Search::Search(const Search& known, const AutoRecomputeOptions& options)
    : open_(known.open_),
      program_(known.program_),
      options_(options),
      graph_(known.graph_),
      plain_(known.plain_),
      difference_(known.difference_) {
  prepare(&known);
}

void Search::prepare(const Search* known) {
  if (options_.candidates == 0) options_.candidates = 24;
  const double seconds = open_()->info().host_bandwidth.seconds_there_and_back();
  graph_.offload_cost = graph_.byte_cost = std::numeric_limits<double>::infinity();
  if (options_.host_bytes > 0)
    graph_.offload_cost = options_.times ? seconds : seconds * OpCost::flops_per_second;
  graph_.host_bytes = options_.host_bytes;
  if (!known) plain_ = measure(Plan{});  // without the memory that recording takes
  rest_ = plain_.peak() - std::min(plain_.peak(), evaluate(graph_, {}).peak);
  measure_work_ = work_of(plain_.forecast.work);
  work_.on_progress = [this](const PlanWork& work) {
    const auto done = static_cast<double>(work.done - begun_);
    const double share = std::min(1.0, done / static_cast<double>(own_work_limit()));
    report(simpler_ ? 0.5 + share / 2 : share);
  };
  check(!graph_.records.empty(), "recompute search",
        "the program must take training steps, got nothing that wants a gradient");
  graph_ = with_costs(options_);
  graphs_ = {graph_};
  AutoRecomputeOptions other = options_;
  if (options_.times || graph_.can_offload() || graph_.can_quantize()) {
    if (!options_.times) other.host_bytes = 0, other.keep_8_bits = false;
    other.times = nullptr;
    other.on_progress = [this](double share) { report(share / 2); };
    if (known && known->simpler_ && other.effort == known->options_.effort)
      (simpler_ = known->simpler_)->options_.on_progress = {};
    else
      simpler_ = std::make_shared<Search>(*this, other);
  } else {
    const double mostly_flops = 2, usual = AutoRecomputeOptions().flops_per_byte;
    other.flops_per_byte = options_.flops_per_byte > mostly_flops ? mostly_flops : usual;
    Graph differs = with_costs(other);
    if (!is_proportional(graph_, differs)) graphs_.emplace_back(std::move(differs));
  }
}

void Search::report(double share) const {
  if (options_.on_progress) options_.on_progress(share);
}

Graph Search::with_costs(const AutoRecomputeOptions& options) const {
  Graph graph = graph_;
  for (Graph::Record& record : graph.records) record.cost = options.cost(record.work);
  if (options.keep_8_bits) graph.byte_cost = options.cost({.bytes = 1});
  if (!options.times) return graph;
  // An op that could not be measured takes the time that its work takes on average in the others.
  double seconds = 0, work = 0;
  for (const Graph::Record& record : graph.records) {
    if (!record.seconds) continue;
    seconds += *record.seconds;
    work += record.cost;
  }
  const double unit = work > 0 ? seconds / work : 1;
  for (Graph::Record& record : graph.records)
    record.cost = record.seconds.value_or(record.cost * unit);
  graph.byte_cost *= unit;
  return graph;
}

// Returns the bytes that a run under the plan takes at least. In the networks of the memory
// benchmark evaluate() says at most 15 % more than a dry run (where vjps need less scratch memory
// than their forwards); a quarter is left for others.
uint64_t Search::sure_peak(const Plan& plan) const {
  return (plan.peak + rest_) / 4 * 3;
}

// Tells, before a dry run of the plan, whether a candidate is known that costs no more and needs
// less memory.
bool Search::is_beaten(const Plan& plan) const {
  return is_among(candidates_, plan) || std::ranges::any_of(candidates_, [&](const Candidate& c) {
           return c.plan.cost <= plan.cost && c.peak() <= sure_peak(plan);
         });
}

// Returns a candidate of the simpler search with its cost as this one counts.
Candidate Search::weighed(Candidate candidate) const {
  fill_in(graph_, candidate.plan);
  candidate.cost = cost(candidate);
  return candidate;
}

Candidate Search::measure(Plan plan, Graph* record) {
  Candidate candidate{follow(graph_, std::move(plan)), {}};
  fill_in(graph_, candidate.plan);
  const auto program = [&] {
    const PlanFollower scope(candidate.plan, record, options_.times.get());
    program_();
    if (difference_.empty()) difference_ = scope.difference();
  };
  candidate.forecast = dry_run(open_(), program, {.pack = false});
  candidate.cost = cost(candidate);
  work_.count(measure_work_);
  return candidate;
}

double Search::cost(const Candidate& candidate) const {
  if (options_.times) return evaluate(graph_, candidate.plan).cost;
  const auto copied = static_cast<double>(offloaded_bytes(candidate.forecast.work));
  return options_.cost(candidate.replay()) +
         (graph_.can_offload() ? graph_.offload_cost / 2 * copied : 0);
}

uint64_t Search::own_work_limit() const {
  const auto records = static_cast<double>(graph_.records.size());
  const double scale = std::clamp(records / records_for_answer, 1.0, most_answer);
  return static_cast<uint64_t>(options_.effort * scale * (simpler_ ? 0.5 : 1) * answer_work);
}

void Search::begin_answer() {
  begun_ = work_.done;
  work_.limit = begun_ + own_work_limit();
}

// Tells whether there is work left for one of the graphs, given how much the first one took. The
// first graph is always looked at.
bool Search::has_work_for(size_t graph, uint64_t first) {
  return graph == 0 || work_.allows(first);
}

// Returns how many plans to measure with a quarter of an answer's work.
int Search::measures(int wanted) {
  constexpr uint64_t least = 3;
  const uint64_t affordable = std::max(least, own_work_limit() / 4 / measure_work_);
  if (affordable >= static_cast<uint64_t>(wanted)) return wanted;
  work_.is_cut = true;
  return static_cast<int>(affordable);
}

const std::vector<Candidate>& Search::candidates() {
  if (!candidates_.empty()) return candidates_;
  begin_answer();
  if (simpler_) {
    for (const Candidate& candidate : simpler_->candidates())
      candidates_.push_back(weighed(candidate));
  } else {
    candidates_ = memory_candidates();
    candidates_.push_back(plain_);
    candidates_.push_back(measure(plan_collection(save_matmuls())));
  }
  if (least_) candidates_.push_back(*least_);
  const uint64_t start = work_.done;
  uint64_t first = 0;
  for (size_t k = 0; k < graphs_.size() && has_work_for(k, first); ++k) {
    graphs_in_use_ = k + 1;
    for (Plan& plan : plan_budgets(graphs_[k], measures(options_.candidates), &work_)) {
      fill_in(graph_, plan);
      if (!is_beaten(plan)) candidates_.push_back(measure(std::move(plan)));
    }
    if (k == 0) first = work_.done - start;
  }
  candidates_ = best_of(std::move(candidates_));
  return candidates_;
}

// Returns the candidates that no other beats in both cost and peak, by falling peak.
std::vector<Candidate> Search::best_of(std::vector<Candidate> candidates) const {
  std::stable_sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.cost, a.peak()) < std::pair(b.cost, b.peak());
  });
  std::vector<Candidate> best;
  for (Candidate& candidate : candidates)
    if (best.empty() || candidate.peak() < best.back().peak()) best.push_back(std::move(candidate));
  return best;
}

std::vector<Candidate>::iterator Search::cheapest(uint64_t bytes) {
  candidates();
  return std::find_if(candidates_.begin(), candidates_.end(),
                      [&](const Candidate& candidate) { return candidate.peak() <= bytes; });
}

void Search::refine(uint64_t bytes) {
  if (simpler_) {
    candidates();
    simpler_->refine(bytes);
    for (const Candidate& candidate : simpler_->candidates()) add(weighed(candidate));
  }
  if (!candidates_.empty()) begin_answer();
  const auto at = cheapest(bytes);
  if (at == candidates_.begin() || at == candidates_.end() || !refined_.insert(at->peak()).second)
    return;
  const auto steps = static_cast<uint64_t>(measures(7)) + 1;
  const Candidate low = *at, high = *(at - 1);
  const uint64_t least = candidates_.back().peak();
  std::vector<uint64_t> targets;
  for (uint64_t k = 1; k < steps; ++k) {
    const uint64_t target = low.peak() + (high.peak() - low.peak()) * k / steps;
    targets.push_back(target - std::min(target, rest_));
  }
  // A plan that is better than an existing candidate comes too late, since budgets were answered
  // without it. So only plans between two candidates, or below all of them, are taken.
  std::vector<Candidate> between, below;
  const uint64_t start = work_.done;
  uint64_t first = 0;
  for (size_t k = 0; k < graphs_in_use_ && has_work_for(k, first); ++k) {
    for (auto& plan : plan_each_budget(graphs_[k], targets, &work_)) {
      if (!plan || is_among(between, *plan) || is_among(below, *plan)) continue;
      fill_in(graph_, *plan);
      const bool may_fit = plan->cost > high.plan.cost && plan->cost < low.plan.cost;
      if (!may_fit && sure_peak(*plan) >= least) continue;
      Candidate candidate = measure(std::move(*plan));
      const bool fits = candidate.peak() > low.peak() && candidate.peak() < high.peak() &&
                        candidate.cost > high.cost && candidate.cost < low.cost;
      if (fits)
        between.push_back(std::move(candidate));
      else if (candidate.peak() < least)
        below.push_back(std::move(candidate));
    }
    if (k == 0) first = work_.done - start;
  }
  between = best_of(std::move(between));
  for (const Candidate& candidate : between) refined_.insert(candidate.peak());
  candidates_.insert(at, std::make_move_iterator(between.begin()),
                     std::make_move_iterator(between.end()));
  for (Candidate& candidate : best_of(std::move(below))) join(std::move(candidate));
}

// Adds a candidate of the simpler search unless one is better; those that are worse go. None of
// them was an answer, since the simpler search had one that was at least as good.
void Search::add(Candidate candidate) {
  const auto at = cheapest(candidate.peak());
  if (at != candidates_.end() && at->cost <= candidate.cost) return;
  auto first = at;
  while (first != candidates_.begin() && (first - 1)->cost >= candidate.cost) --first;
  candidates_.insert(candidates_.erase(first, at), std::move(candidate));
}

// A plan whose peak is below those of all candidates becomes a candidate; nothing is refined below
// it.
void Search::join(Candidate candidate) {
  if (candidate.peak() >= candidates_.back().peak()) return;
  refined_.insert(candidate.peak());
  candidates_.push_back(std::move(candidate));
}

Candidate Search::budget(uint64_t bytes) {
  refine(bytes);
  if (const auto found = cheapest(bytes); found != candidates_.end()) return hand_out(*found);
  fail<OutOfMemory>(
      "memory budget",
      "the step must fit in {} ({} bytes); the least that recomputation reaches is {} ({} bytes){}",
      format_bytes(bytes), bytes, format_bytes(candidates().back().peak()),
      candidates().back().peak(),
      difference_.empty() ? "" : "; not all steps are alike: " + difference_);
}

const std::vector<Candidate>& Search::memory_candidates() {
  if (memory_candidates_.empty())
    for (const StagedGraph& graph : graphs_)
      memory_candidates_.push_back(measure(plan_memory(graph, &work_)));
  return memory_candidates_;
}

Candidate Search::memory() {
  if (simpler_) return hand_out(weighed(simpler_->memory()));
  begin_answer();
  std::vector<Candidate> known = memory_candidates();
  known.insert(known.end(), candidates_.begin(), candidates_.end());
  if (least_) known.push_back(*least_);
  std::erase_if(known, [](const Candidate& candidate) {
    const auto& segments = candidate.plan.segments;
    return std::any_of(segments.begin(), segments.end(), [](auto& s) { return s.parent >= 0; });
  });
  const auto best = std::min_element(
      known.begin(), known.end(), [](const auto& a, const auto& b) { return a.peak() < b.peak(); });
  return hand_out(*best);
}

Candidate Search::choose(uint64_t bytes) {
  using Mode = AutoRecomputeOptions::Mode;
  switch (options_.mode) {
    case Mode::memory:
      return memory();
    case Mode::speed:
      return speed();
    case Mode::collection:
      return collection(save_ops(options_.collection));
    case Mode::budget:
      return budget(bytes);
    case Mode::evict:
      break;
  }
  fail<ValueError>("recompute", "evicting needs no plan");
}

Candidate Search::hand_out(Candidate candidate) {
  if (!candidates_.empty())
    join(candidate);
  else if (!least_ || candidate.peak() < least_->peak())
    least_ = candidate;
  report(1);
  return candidate;
}

Candidate Search::speed() {
  return collection(save_matmuls());
}

Plan Search::plan_collection(const SavePolicy& policy) const {
  std::vector<bool> kept(graph_.records.size());
  for (size_t r = 0; r < graph_.records.size(); ++r) {
    const Graph::Record& record = graph_.records[r];
    uint64_t bytes = 0;
    for (const uint32_t value : record.outputs) bytes += graph_.values[value].bytes;
    if (!policy({record.label.c_str(), record.work, bytes, record.is_heavy})) continue;
    // A view stands for the record that made the value that it views.
    const int32_t maker = record.outputs.empty() && !record.inputs.empty()
                              ? graph_.values[record.inputs[0]].record
                              : static_cast<int32_t>(r);
    if (maker >= 0) kept[static_cast<size_t>(maker)] = true;
  }
  return plan_speed(graph_, [&](uint32_t record) { return kept[record]; });
}

Candidate Search::collection(const SavePolicy& policy) {
  const Candidate candidate = measure(plan_collection(policy));
  const bool pays = candidate.peak() < plain_.peak();
  return hand_out(pays ? candidate : plain_);
}

}  // namespace rw
