#include "planner/follow/search.h"

#include <algorithm>
#include <iterator>

#include "planner/graph/evaluate.h"
#include "planner/search/plans.h"
#include "planner/search/speed.h"

namespace rw {

namespace {

// Of work (planner/graph/plan_work.h), for one answer: about a second of a 2 GHz Xeon's, so that
// slower machines keep the bound, too.
constexpr double answer_work = 1.5e9;
constexpr double records_for_answer = 2000;  // more of them get more work, up to ten times as much
constexpr double most_answer = 10;
constexpr uint64_t kernel_work = 2'000, run_work = 200'000;  // of a dry run

uint64_t work_of(const WorkByPhase& work) {
  uint64_t calls = 0;
  for (const Work& phase : work) calls += phase.calls;
  return run_work + kernel_work * calls;
}

}  // namespace

RecomputeSearch::RecomputeSearch(OpenDry open, Program program, const RecomputeObjective& objective)
    : open_(std::move(open)), program_(std::move(program)), objective_(objective) {
  measure(Recompute{}, false, &recorded_);
  plain_ = measure(Recompute{});  // without what recording it takes
  measure_work_ = work_of(plain_.forecast.work);
  work_.on_progress = [this](const PlanWork& work) {
    const auto done = static_cast<double>(work.done - begun_);
    if (objective_.on_progress)
      objective_.on_progress(std::min(1.0, done / static_cast<double>(work_limit())));
  };
  check(!recorded_.graph.records.empty(), "recompute search",
        "the program must take training steps, got nothing that wants a gradient");
  recorded_.graph = with_costs(objective_);
  constexpr double mostly_flops = 2;
  RecomputeObjective other;
  if (objective_.flops_per_byte > mostly_flops) other.flops_per_byte = mostly_flops;
  graphs_ = {recorded_.graph, with_costs(other)};
}

RecomputeGraph RecomputeSearch::with_costs(const RecomputeObjective& objective) const {
  RecomputeGraph graph = recorded_.graph;
  for (size_t i = 0; i < recorded_.costs.size(); ++i)
    graph.records[i].cost = objective(recorded_.costs[i]);
  return graph;
}

RecomputeChoice RecomputeSearch::measure(Recompute recompute, bool pack, RecordedGraph* record) {
  RecomputeChoice choice{std::move(recompute), {}};
  const auto program = [&] {
    const RecomputeScope scope(choice.recompute, record);
    program_();
    if (difference_.empty()) difference_ = scope.difference();
  };
  choice.forecast = dry_run(open_(), program, {.pack = pack});
  work_.count(measure_work_);
  return choice;
}

uint64_t RecomputeSearch::work_limit() const {
  const auto records = static_cast<double>(recorded_.graph.records.size());
  const double scale = std::clamp(records / records_for_answer, 1.0, most_answer);
  return static_cast<uint64_t>(objective_.effort * scale * answer_work);
}

void RecomputeSearch::begin_answer() {
  begun_ = work_.done;
  work_.limit = begun_ + work_limit();
}

// Whether to look at one of the graphs, as the first one took so much: that one is looked at
// always.
bool RecomputeSearch::has_work_for(size_t graph, uint64_t first) {
  return graph == 0 || work_.allows(first);
}

// How many plans to measure, with a quarter of an answer's work.
int RecomputeSearch::measures(int wanted) {
  constexpr uint64_t least = 3;
  const uint64_t affordable = std::max(least, work_limit() / 4 / measure_work_);
  if (affordable >= static_cast<uint64_t>(wanted)) return wanted;
  work_.is_cut = true;
  return static_cast<int>(affordable);
}

const std::vector<RecomputeChoice>& RecomputeSearch::choices() {
  if (!choices_.empty()) return choices_;
  begin_answer();
  choices_ = memory_choices();
  choices_.push_back(plain_);
  choices_.push_back(measure(plan_collection(save_matmuls())));
  if (least_) choices_.push_back(*least_);
  const uint64_t start = work_.done;
  uint64_t first = 0;
  for (size_t k = 0; k < graphs_.size() && has_work_for(k, first); ++k) {
    for (const RecomputePlan& plan :
         plan_budgets(graphs_[k], measures(objective_.candidates), &work_))
      choices_.push_back(measure(plan));
    if (k == 0) first = work_.done - start;
  }
  choices_ = best_of(std::move(choices_));
  return choices_;
}

// Those that no other beats in both cost and peak, by falling peak.
std::vector<RecomputeChoice> RecomputeSearch::best_of(std::vector<RecomputeChoice> choices) const {
  std::stable_sort(choices.begin(), choices.end(), [&](const auto& a, const auto& b) {
    return std::pair(cost(a), a.peak()) < std::pair(cost(b), b.peak());
  });
  std::vector<RecomputeChoice> best;
  for (RecomputeChoice& choice : choices)
    if (best.empty() || choice.peak() < best.back().peak()) best.push_back(std::move(choice));
  return best;
}

std::vector<RecomputeChoice>::iterator RecomputeSearch::cheapest(uint64_t bytes) {
  choices();
  return std::find_if(choices_.begin(), choices_.end(),
                      [&](const RecomputeChoice& choice) { return choice.peak() <= bytes; });
}

void RecomputeSearch::refine(uint64_t bytes) {
  if (!choices_.empty()) begin_answer();
  const auto at = cheapest(bytes);
  if (at == choices_.begin() || at == choices_.end() || !refined_.insert(at->peak()).second) return;
  const auto steps = static_cast<uint64_t>(measures(7)) + 1;
  const RecomputeChoice low = *at, high = *(at - 1);
  // Bytes that plans do not know: parameters, optimizer, data.
  const uint64_t rest = plain_.peak() - std::min(plain_.peak(), evaluate(recorded_.graph, {}).peak);
  const uint64_t least = choices_.back().peak();
  std::vector<uint64_t> targets;
  for (uint64_t k = 1; k < steps; ++k) {
    const uint64_t target = low.peak() + (high.peak() - low.peak()) * k / steps;
    targets.push_back(target - std::min(target, rest));
  }
  // What is better than a choice all the same comes too late: budgets were answered without it.
  std::vector<RecomputeChoice> between, below;
  const uint64_t start = work_.done;
  uint64_t first = 0;
  for (size_t k = 0; k < graphs_.size() && has_work_for(k, first); ++k) {
    for (const auto& plan : plan_each_budget(graphs_[k], targets, &work_)) {
      if (!plan) continue;
      RecomputeChoice choice = measure(*plan);
      const bool fits = choice.peak() > low.peak() && choice.peak() < high.peak() &&
                        cost(choice) > cost(high) && cost(choice) < cost(low);
      if (fits)
        between.push_back(std::move(choice));
      else if (choice.peak() < least)
        below.push_back(std::move(choice));
    }
    if (k == 0) first = work_.done - start;
  }
  between = best_of(std::move(between));
  for (const RecomputeChoice& choice : between) refined_.insert(choice.peak());
  choices_.insert(at, std::make_move_iterator(between.begin()),
                  std::make_move_iterator(between.end()));
  for (RecomputeChoice& choice : best_of(std::move(below))) join(std::move(choice));
}

// A plan that goes below all choices is one from then on; nothing is refined below it.
void RecomputeSearch::join(RecomputeChoice choice) {
  if (choice.peak() >= choices_.back().peak()) return;
  refined_.insert(choice.peak());
  choices_.push_back(std::move(choice));
}

RecomputeChoice RecomputeSearch::budget(uint64_t bytes) {
  refine(bytes);
  if (const auto found = cheapest(bytes); found != choices_.end())
    return hand_out(found->recompute);
  fail<OutOfMemory>(
      "memory budget",
      "the step must fit in {} ({} bytes); the least that recomputation reaches is {} ({} bytes){}",
      format_bytes(bytes), bytes, format_bytes(choices().back().peak()), choices().back().peak(),
      difference_.empty() ? "" : "; not all steps are alike: " + difference_);
}

const std::vector<RecomputeChoice>& RecomputeSearch::memory_choices() {
  if (memory_choices_.empty())
    for (const RecomputeGraph& graph : graphs_)
      memory_choices_.push_back(measure(plan_memory(graph, &work_)));
  return memory_choices_;
}

RecomputeChoice RecomputeSearch::memory() {
  begin_answer();
  std::vector<RecomputeChoice> known = memory_choices();
  known.insert(known.end(), choices_.begin(), choices_.end());
  if (least_) known.push_back(*least_);
  std::erase_if(known, [](const RecomputeChoice& choice) {
    const auto& segments = choice.recompute.segments;
    return std::any_of(segments.begin(), segments.end(), [](auto& s) { return s.parent >= 0; });
  });
  const auto best = std::min_element(
      known.begin(), known.end(), [](const auto& a, const auto& b) { return a.peak() < b.peak(); });
  return hand_out(best->recompute);
}

RecomputeChoice RecomputeSearch::hand_out(const Recompute& recompute) {
  const RecomputeChoice choice = measure(recompute, true);
  if (!choices_.empty())
    join(choice);
  else if (!least_ || choice.peak() < least_->peak())
    least_ = choice;
  if (objective_.on_progress) objective_.on_progress(1);
  return choice;
}

RecomputeChoice RecomputeSearch::speed() {
  return collection(save_matmuls());
}

RecomputePlan RecomputeSearch::plan_collection(const SavePolicy& policy) const {
  const RecomputeGraph& graph = recorded_.graph;
  std::vector<bool> kept(graph.records.size());
  for (size_t r = 0; r < graph.records.size(); ++r) {
    const GraphRecord& record = graph.records[r];
    uint64_t bytes = 0;
    for (const uint32_t value : record.outputs) bytes += graph.values[value].bytes;
    if (!policy({recorded_.ops[r].c_str(), recorded_.costs[r], bytes, recorded_.is_heavy[r]}))
      continue;
    // Of a view what it is a view of.
    const int32_t maker = record.outputs.empty() && !record.inputs.empty()
                              ? graph.values[record.inputs[0]].record
                              : static_cast<int32_t>(r);
    if (maker >= 0) kept[static_cast<size_t>(maker)] = true;
  }
  return plan_speed(graph, [&](uint32_t record) { return kept[record]; });
}

RecomputeChoice RecomputeSearch::collection(const SavePolicy& policy) {
  const RecomputeChoice choice = measure(plan_collection(policy));
  const bool pays = choice.peak() < plain_.peak();
  return hand_out(pays ? choice.recompute : plain_.recompute);
}

}  // namespace rw
