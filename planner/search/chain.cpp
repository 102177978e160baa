#include "planner/search/chain.h"

#include "planner/graph/cuts.h"

namespace rw {

// One way to begin a problem (s, t): stages [s, next) as a child segment or stage s as plain
// records, then problem (next, t).
struct ChainPlanner::Step {
  bool child = false;
  uint32_t level = 0;                 // the level inside the child segment
  const KeepOption* keeps = nullptr;  // the further values that it keeps; it has no children then
  uint32_t next = 0;
  // The first part needs `need` units to run at all. While the rest, problem (next, t), runs, the
  // first part holds `hold_plain` units if the rest starts with plain records, and `hold_child`
  // units, which are at least as many, if it starts with a child segment.
  uint32_t need = 0;
  uint32_t hold_plain = 0;
  uint32_t hold_child = 0;
  float cost = 0;
  float extra_plain = 0;   // added to the cost if the rest starts with plain records
  bool offloads = false;   // its values lie in host memory meanwhile
  bool quantizes = false;  // they are packed in 8 bits
};

// A child segment of a problem in some level, without what depends on the problem's end.
struct ChainPlanner::Segment {
  Step step;
  uint64_t need = 0;  // bytes that the forward pass needs for it
  // A replay needs so many bytes, the kept ones up to the problem's end, and gradients.
  int64_t replay_need = 0;
};

struct ChainPlanner::Problem {
  CostRow child, plain;
};

// The problems in which the same values are kept: those of at most `longest` stages.
struct ChainPlanner::Level {
  // The place of problem (s, t) among them.
  size_t index(uint32_t s, uint32_t t) const {
    // Up to t = longest, t - 1 problems come before.
    const uint32_t whole = std::min(t, longest);
    const size_t before = size_t{whole} * (whole - 1) / 2 + size_t{t - whole} * longest;
    return before + s - (t - whole);
  }

  uint32_t number = 0;
  const Stages* stages = nullptr;
  uint32_t longest = 0;
  std::vector<uint32_t> saved_units, quantized_units;  // by stage
  std::vector<Problem> problems;  // by t, then s: steps read (s + 1, t), (s + 2, t), ...
  std::vector<CostRow> best;  // the lesser of the two, by s, then t: (s, s + 1), (s, s + 2), ...
  // By the level inside, from this one on, and s: in the order of their ends.
  std::vector<std::vector<std::vector<Segment>>> segments;
};

ChainPlanner::~ChainPlanner() = default;
ChainPlanner::ChainPlanner(ChainPlanner&&) noexcept = default;

inline const ChainPlanner::Problem& ChainPlanner::problem(const Level& level, uint32_t s,
                                                          uint32_t t) {
  return level.problems[level.index(s, t)];
}

inline const CostRow& ChainPlanner::best(const Level& level, uint32_t s, uint32_t t) {
  return level.best[size_t{s} * level.longest + t - s - 1];
}

float ChainPlanner::cost(uint32_t slots) const {
  return CostStore::cost(best(levels_[0], 0, count()), slots);
}

ChainPlanner::ChainPlanner(const Graph& graph, const std::vector<ValueUse>& uses,
                           std::shared_ptr<const StageLevels> stages, const Options& options)
    : graph_(graph),
      uses_(uses),
      options_(options),
      stages_(std::move(stages)),
      child_(options.slots),
      plain_(options.slots) {
  const uint32_t n = count();
  for (uint32_t k = 0; k < levels(); ++k)
    add_level((*stages_)[k], k == 0 ? n : std::min(n, options_.longest));
  for (Level& level : levels_)
    for (uint32_t inner = level.number; inner < levels(); ++inner) {
      level.segments.emplace_back(n);
      for (uint32_t s = 0; s < n; ++s) level.segments.back()[s] = segments(level, inner, s);
    }
  if (options_.inner_limit > 1) divide_stages();
  // The inside of a segment of the forward pass is solved before the segment.
  for (size_t k = levels_.size(); k-- > 0;)
    for (uint32_t t = 1; t <= n; ++t) {
      if (k > 0 && is_free(t)) continue;
      for (uint32_t s = t; s-- > t - std::min(t, levels_[k].longest);) solve(levels_[k], s, t);
    }
}

void ChainPlanner::add_level(const Stages& stages, uint32_t longest) {
  Level level{
      .number = static_cast<uint32_t>(levels_.size()), .stages = &stages, .longest = longest};
  const auto units_of = [&](uint64_t Stages::Stage::*bytes) {
    std::vector<uint32_t> all;
    uint64_t sum = 0;  // each rounding error goes into the next stage, so that small stages add up
    for (const Stages::Stage& stage : stages.stages) {
      sum += stage.*bytes;
      all.push_back(units(sum));
      sum -= std::min(sum, uint64_t{all.back()} * options_.unit);
    }
    return all;
  };
  level.saved_units = units_of(&Stages::Stage::saved);
  level.quantized_units = units_of(&Stages::Stage::quantized);
  const uint32_t n = stages.count();
  level.problems.resize(level.index(n - 1, n) + 1);
  level.best.resize(size_t{n} * longest);
  levels_.push_back(std::move(level));
}

// Makes a planner for each stage of several records: its costs stand for the stage where nothing
// follows.
void ChainPlanner::divide_stages() {
  Options options = options_;
  options.inner_limit = 0;
  inner_.resize(count());
  const Stages& stages = *levels_[0].stages;
  for (uint32_t i = 0; i < count(); ++i) {
    const uint32_t first = stages.positions[i], last = stages.positions[i + 1];
    if (last - first < 2) continue;
    options.whole = is_free(i + 1);
    const auto cuts = cut_into_stages(graph_, uses_, first, last, options_.inner_limit);
    inner_[i] = std::make_unique<ChainPlanner>(
        graph_, uses_, std::make_shared<const StageLevels>(graph_, uses_, cuts), options);
    const ChainPlanner& inner = *inner_[i];
    work_ += inner.work();
    child_.clear();
    child_.add(best(inner.levels_[0], 0, inner.count()));
    levels_[0].problems[levels_[0].index(i, i + 1)].child = store_.add(child_);
  }
}

void ChainPlanner::solve(Level& level, uint32_t s, uint32_t t) {
  steps_.clear();
  if (options_.nested || is_free(t)) add_child_steps(level, s, t);
  add_plain_steps(level, s, t);
  if (is_free(t)) add_offloading_steps();
  Problem& problem = level.problems[level.index(s, t)];
  child_.clear();
  plain_.clear();
  for (const Step& step : steps_) relax(level, step, s, t);
  if (s + 1 < t) problem.child = store_.add(child_);  // the values in a divided stage are there
  problem.plain = store_.add(plain_);
  plain_.add(problem.child);
  level.best[size_t{s} * level.longest + t - s - 1] =
      problem.child.is_feasible() ? store_.add(plain_) : problem.plain;
}

void ChainPlanner::add_plain_steps(const Level& level, uint32_t s, uint32_t t) {
  const Stages& stages = *level.stages;
  const Stages::Stage& stage = stages.stages[s];
  const uint64_t waiting =
      is_free(t) ? 0 : stages.stages[t - 1].gradients + stages.kept_bytes(s + 1, t);
  Step step;
  step.next = s + 1;
  step.need = units(std::max(stage.backward_peak, stage.forward_peak + waiting));
  step.hold_plain = step.hold_child = level.saved_units[s];
  if (step.next < t) step.hold_child += units(stages.stages[s + 1].dropped);
  const double cost = is_free(t) ? 0 : step.next == t ? stage.tail : stage.replay;
  step.cost = static_cast<float>(cost / options_.cost_unit);
  steps_.push_back(step);
  if (is_free(t) && graph_.can_quantize()) add_quantizing_step(level, s, t, step);
}

// Adds a step of plain records again, with what they save in 8 bits. What a segment that follows
// reads stays as it is.
void ChainPlanner::add_quantizing_step(const Level& level, uint32_t s, uint32_t t, Step step) {
  const Stages& stages = *level.stages;
  const Stages::Stage& stage = stages.stages[s];
  if (stage.quantize_cost == 0) return;
  step.quantizes = true;
  step.hold_plain = step.hold_child = level.quantized_units[s];
  if (step.next < t)
    step.hold_child += units(stages.crossing(s, s + 1) + stages.stages[s + 1].dropped);
  step.cost += static_cast<float>(stage.quantize_cost / options_.cost_unit);
  steps_.push_back(step);
}

void ChainPlanner::add_child_steps(const Level& level, uint32_t s, uint32_t t) {
  const uint32_t own = level.number, all = levels() - 1;
  add_segment_steps(level, own, s, t);
  // Segments of any level may begin in the forward pass; a replay keeps all or nothing for a child
  // segment.
  for (uint32_t k = is_free(t) ? own + 1 : std::max(own + 1, all); k <= all; ++k)
    add_segment_steps(level, k, s, t);
}

// Returns the child segments [s, j) of problems in `level`, which keep inside what `inner` keeps.
std::vector<ChainPlanner::Segment> ChainPlanner::segments(const Level& level, uint32_t inner,
                                                          uint32_t s) const {
  const Stages &stages = *level.stages, &inside = (*stages_)[inner];
  const uint32_t own = level.number;
  const auto kept_before = [&](uint32_t j) {
    return static_cast<int64_t>(stages.kept_bytes(0, j));
  };
  std::vector<Segment> segments;
  double sweep = 0;
  for (uint32_t j = s + 1; j < std::min(count(), s + levels_[inner].longest + 1); ++j) {
    sweep += stages_->sweep(own, inner, j - 1) / options_.cost_unit;
    const bool adds =
        inner == own || inside.kept_bytes(s, j) > (*stages_)[inner - 1].kept_bytes(s, j);
    if (!adds) continue;
    Segment segment;
    segment.need = inside.sweep_peak(s, j);
    segment.replay_need = std::max(static_cast<int64_t>(segment.need) - kept_before(j),
                                   static_cast<int64_t>(stages.replay_peak(s, j)) - kept_before(s));
    const Stages::Stage& end = inside.stages[j - 1];
    segment.step = {
        .child = true,
        .level = inner,
        .next = j,
        .hold_plain = units(inside.crossing_held(s, j)),
        .hold_child = units(inside.crossing(s, j)),
        .cost = static_cast<float>(sweep),
        .extra_plain = static_cast<float>((end.unaided_tail - end.tail) / options_.cost_unit)};
    segments.push_back(segment);
  }
  return segments;
}

// Adds child segments of a problem in `level`, which keep inside what `inner` keeps.
void ChainPlanner::add_segment_steps(const Level& level, uint32_t inner, uint32_t s, uint32_t t) {
  const Stages& stages = *level.stages;
  const bool replays = !is_free(t);
  const auto waiting =
      static_cast<int64_t>(stages.kept_bytes(0, t) + stages.stages[t - 1].gradients);
  for (const Segment& segment : level.segments[inner - level.number][s]) {
    if (segment.step.next >= t) return;
    const uint32_t need =
        units(replays ? static_cast<uint64_t>(segment.replay_need + waiting) : segment.need);
    if (need > options_.slots) continue;
    Step& step = steps_.emplace_back(segment.step);
    step.need = need;
    if (replays) continue;
    step.cost = 0;
    if (inner == 0 && options_.keeps) add_keep_steps(s, step.next, step);
  }
}

// Adds segments of the forward pass that have no segments inside and keep their own sets of values.
void ChainPlanner::add_keep_steps(uint32_t s, uint32_t j, Step step) {
  const Stages& stages = (*stages_)[0];
  const uint64_t held = stages.crossing_held(s, j), crossing = stages.crossing(s, j);
  const uint32_t need = step.need;
  for (const KeepOption& option : stages.keep_options(s, j)) {
    step.keeps = &option;
    step.need = std::max(need, units(option.peak));
    // There are many options, and bytes are rounded to units, so the search would always pick
    // options whose bytes happen to be rounded down. Rounding up a little here prevents that.
    const uint64_t bytes = option.bytes + options_.unit / 4;
    step.hold_plain = units(held + bytes);
    step.hold_child = units(crossing + bytes);
    step.cost = static_cast<float>(option.cost / options_.cost_unit);
    step.extra_plain = static_cast<float>((option.unaided_cost - option.cost) / options_.cost_unit);
    steps_.push_back(step);
  }
}

// Adds the steps again, with what they hold in host memory.
void ChainPlanner::add_offloading_steps() {
  if (!graph_.can_offload()) return;
  const auto cost = [&](uint32_t units) {
    return static_cast<float>(graph_.offload_cost * static_cast<double>(units * options_.unit) /
                              options_.cost_unit);
  };
  for (size_t i = 0, n = steps_.size(); i < n; ++i) {
    Step step = steps_[i];
    if (step.hold_child == 0 || step.quantizes) continue;
    step.offloads = true;
    step.cost += cost(step.hold_child);
    step.extra_plain += cost(step.hold_plain) - cost(step.hold_child);
    step.hold_plain = step.hold_child = 0;
    steps_.push_back(step);
  }
}

// The costs inside the child segment, if the step leaves any choice there.
const CostRow& ChainPlanner::inside(const Step& step, uint32_t s) const {
  const bool is_open = step.child && !step.keeps;
  return is_open ? best(levels_[step.level], s, step.next) : CostStore::free;
}

float ChainPlanner::child_rest(const Level& level, const Step& step, uint32_t t, uint32_t m) const {
  if (m < step.hold_child) return infeasible_cost;
  return CostStore::cost(problem(level, step.next, t).child, m - step.hold_child);
}

float ChainPlanner::plain_rest(const Level& level, const Step& step, uint32_t t, uint32_t m) const {
  return step.extra_plain +
         CostStore::cost(problem(level, step.next, t).plain, m - step.hold_plain);
}

float ChainPlanner::cost_of(const Level& level, const Step& step, uint32_t s, uint32_t t,
                            uint32_t m) const {
  if (m < std::max(step.need, step.hold_plain)) return infeasible_cost;
  const float cost = step.cost + CostStore::cost(inside(step, s), m);
  if (step.next == t) return cost;
  return cost + std::min(child_rest(level, step, t, m), plain_rest(level, step, t, m));
}

// Takes the step for all m at once.
void ChainPlanner::relax(const Level& level, const Step& step, uint32_t s, uint32_t t) {
  CostDraft& draft = step.child ? child_ : plain_;
  const CostRow& own = inside(step, s);
  const auto add = [&](float cost, const CostRow& rest, uint32_t hold) {
    work_ += tuning::row_work + draft.add(step.need, cost, own, rest, hold);
  };
  if (step.next == t) return add(step.cost, CostStore::free, step.hold_plain);
  const Problem& rest = problem(level, step.next, t);
  add(step.cost + step.extra_plain, rest.plain, step.hold_plain);
  add(step.cost, rest.child, step.hold_child);
}

void ChainPlanner::append_plan(uint32_t slots, int32_t parent, Plan& plan) {
  walk(0, 0, count(), slots, parent, plan);
}

void ChainPlanner::walk(uint32_t k, uint32_t s, uint32_t t, uint32_t m, int32_t parent,
                        Plan& plan) {
  const Level& level = levels_[k];
  const Problem& whole = problem(level, s, t);
  bool child = CostStore::cost(whole.child, m) < CostStore::cost(whole.plain, m);
  while (s < t) {
    if (child && s + 1 == t) return inner_[s]->append_plan(m, parent, plan);
    const Step step = cheapest_step(level, child, s, t, m);
    if (child) {
      const auto index = static_cast<int32_t>(plan.segments.size());
      plan.segments.push_back(
          {level.stages->positions[s], level.stages->positions[step.next], parent});
      keep(level, step, s, parent, plan);
      if (!step.keeps) walk(step.level, s, step.next, m, index, plan);
    }
    if (step.offloads || step.quantizes) offload(step, s, plan);
    if (step.next == t) return;
    child = child_rest(level, step, t, m) < plain_rest(level, step, t, m);
    m -= child ? step.hold_child : step.hold_plain;
    s = step.next;
  }
}

ChainPlanner::Step ChainPlanner::cheapest_step(const Level& level, bool child, uint32_t s,
                                               uint32_t t, uint32_t m) {
  steps_.clear();
  if (child)
    add_child_steps(level, s, t);
  else
    add_plain_steps(level, s, t);
  if (is_free(t)) add_offloading_steps();
  return *std::min_element(steps_.begin(), steps_.end(), [&](const Step& a, const Step& b) {
    return cost_of(level, a, s, t, m) < cost_of(level, b, s, t, m);
  });
}

// Adds what a child segment keeps, unless it is kept already.
void ChainPlanner::keep(const Level& level, const Step& step, uint32_t s, int32_t replay,
                        Plan& plan) const {
  if (step.keeps)
    for (uint32_t v : step.keeps->kept) plan.keep.push_back(graph_.output(v));
  const Stages& inside = (*stages_)[step.level];
  for (uint32_t r = inside.positions[s]; r < inside.positions[step.next]; ++r)
    for (uint32_t v : graph_.records[r].outputs)
      if (inside.is_kept(v) && !level.stages->is_kept(v))
        plan.keep.push_back(graph_.output(v, replay));
}

// Adds offloads of what the step's records make, without what is small beside a slot; fill_in()
// leaves out what nobody holds.
void ChainPlanner::offload(const Step& step, uint32_t s, Plan& plan) const {
  const std::vector<uint32_t>& positions = (*stages_)[0].positions;
  for (uint32_t r = positions[s]; r < positions[step.next]; ++r)
    for (uint32_t v : graph_.records[r].outputs)
      if (graph_.values[v].bytes >= options_.unit / tuning::slot_to_offload)
        plan.offloads.push_back(offload_of(graph_, uses_, v, step.quantizes));
}

}  // namespace rw
