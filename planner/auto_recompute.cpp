#include "planner/auto_recompute.h"

#include <algorithm>

#include "core/memory/memory_report.h"
#include "planner/follow/tape_rerun.h"

namespace rw {

namespace {

using Mode = AutoRecomputeOptions::Mode;

// Planning takes as long as several steps, so a program whose memory grows without end goes on by
// eviction.
constexpr int most_plans = 4;

// The factor on the effort of a plan that is made again because the first effort left plans out.
constexpr double more_effort = 8;
// The planning work (planner/graph/plan_work.h) per record of a pass: at most a tenth of what
// forward, backward and update of an op take.
constexpr uint64_t work_per_record = 5'000;
// Batches of ever new lengths would make kinds without end.
constexpr size_t most_kinds = 64;

// The share of the budget for the rounding of sizes, which a plan does not know exactly.
uint64_t margin(uint64_t budget) {
  return budget / 64;
}

// Tells, by a dry run, whether eviction gets the pass through its backward in so many bytes.
bool eviction_does(const TapeRerun& rerun, uint64_t bytes) {
  const auto program = [&] {
    const MemoryBudget budget(bytes);
    const PlanFollower scope({.evicts = true});
    rerun.run();
  };
  try {
    dry_run(endless_dry(default_device()->backend()), program, {.pack = false});
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
}

// Returns the plan that the search's options ask for if it stays within the budget's `bytes`.
std::optional<Candidate> candidate_within(Search& search, bool has_budget, uint64_t bytes) {
  try {
    Candidate candidate = search.choose(bytes);
    if (!has_budget || candidate.peak() <= bytes) return candidate;
  } catch (const OutOfMemory&) {  // no plan stays within them
  }
  return std::nullopt;
}

// Turns a plan over the records that are alive before backward into one over all records of the
// pass. `alive` has the number of each such record in the pass.
Plan spread(Plan plan, const std::vector<uint32_t>& alive, const std::vector<std::string>& ops) {
  for (auto& segment : plan.segments) {
    segment.first = alive[segment.first];
    segment.last = alive[segment.last - 1] + 1;
  }
  for (auto& output : plan.keep) output.record = alive[output.record];
  for (auto& offload : plan.offloads) {
    offload.record = alive[offload.record];
    // Records that are not alive may read the value, too.
    offload.after = offload.after + 1 < alive.size() ? alive[offload.after + 1] - 1
                                                     : static_cast<uint32_t>(ops.size()) - 1;
  }
  plan.signature = ops;
  return plan;
}

}  // namespace

// Passes of one kind have the same ops in the same order and, with a budget, first outputs of the
// same sizes.
struct AutoRecompute::Kind {
  std::vector<std::string> ops;
  std::vector<uint64_t> bytes;
  int passes = 0;
  uint64_t last = 0;              // the number of the last pass of this kind
  int next = -1;                  // the kind that came after it the last time
  std::optional<Plan> plan = {};  // empty before there is one, or if it is not worth one
  int plans = 0;                  // plans that were made or tried
  bool is_cut = false;            // more effort may find a better one
  double cost = 0;                // of the plan's replays
  uint64_t more_work = 0;         // the work of making it again with more effort
  uint64_t live = 0;              // live bytes when the pass for which it was planned began
  std::string fault = "";         // why there is no plan
};

AutoRecompute::AutoRecompute(AutoRecomputeOptions options)
    : PlanFollower(Tape::current(), false), options_(options.of_a_run()) {
  const bool needs_budget = options_.mode == Mode::budget || options_.mode == Mode::evict;
  check<ValueError>(has_budget() || !needs_budget, "recompute",
                    "a budget must be given for this mode, got none");
  if (has_budget())
    budget_.emplace(options_.budget, default_device(), [this] {
      return least_
                 ? fmt::format(" (no plan that was found needs less than {})", exact_bytes(least_))
                 : "";
    });
}

AutoRecompute::~AutoRecompute() {
  end();
}

void AutoRecompute::before_record(Tape& tape, const Op& op) {
  if (std::exchange(is_another_, false) && is_open()) pass_->leave();
  PlanFollower::before_record(tape, op);
}

void AutoRecompute::begin(Tape& tape) {
  live_ = default_device()->live();
  newest_ = Storage::newest();
  kind_ = expected_;
  plan_ = {};
  if (kind_ >= 0) {
    Kind& kind = kinds_[static_cast<size_t>(kind_)];
    // More is live besides the pass than the plan was made for, so the plan is made again.
    if (kind.plan && has_budget() && live_ > kind.live + margin(options_.budget)) kind.plan.reset();
    if (kind.plan) plan_ = *kind.plan;
  }
  if (plan_.is_plain()) plan_.evicts = has_budget();
  ops_.clear();
  bytes_.clear();
  first_ = tape.end();
  PlanFollower::begin(tape);
}

void AutoRecompute::after_record(const Record& record, std::span<const Tensor> outputs) {
  PlanFollower::after_record(record, outputs);
  ops_.emplace_back(record.op->name);
  bytes_.push_back(record.outputs.empty() ? 0 : record.outputs[0].bytes);
  if (!has_budget() || plan_.is_plain()) return;
  const std::vector<uint64_t>& expected = kinds_[static_cast<size_t>(kind_)].bytes;
  const size_t i = bytes_.size() - 1;
  if (i < expected.size() && expected[i] != bytes_[i]) is_another_ = true;
}

int AutoRecompute::kind_of_pass() {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
    return kind.ops == ops_ && (!has_budget() || kind.bytes == bytes_);
  });
  const auto number = static_cast<int>(found - kinds_.begin());
  if (found != kinds_.end()) return number;
  if (kinds_.size() < most_kinds) {
    kinds_.push_back({.ops = ops_, .bytes = bytes_});
    return number;
  }
  const auto oldest = std::min_element(kinds_.begin(), kinds_.end(),
                                       [](auto& a, auto& b) { return a.last < b.last; });
  const auto place = static_cast<int>(oldest - kinds_.begin());
  for (Kind& kind : kinds_)
    if (kind.next == place) kind.next = -1;
  *oldest = {.ops = ops_, .bytes = bytes_};
  return place;
}

void AutoRecompute::before_backward(Tape& tape, const Tensor& root, const Tensor& gradient,
                                    bool retains) {
  if (!pass_) return;
  PlanFollower::before_backward(tape, root, gradient, retains);
  const int number = kind_of_pass();
  Kind& kind = kinds_[static_cast<size_t>(number)];
  ++kind.passes;
  kind.last = ++passes_;
  if (last_ >= 0) kinds_[static_cast<size_t>(last_)].next = number;
  last_ = number;
  expected_ = kind.next >= 0 ? kind.next : number;
  const bool holds_gradient = gradient.defined();
  if (is_worth_more(kind))
    return make_plan(tape, root, holds_gradient, kind, options_.effort * more_effort);
  if (retains && has_budget()) kind.fault = "its values are retained for another backward";
  const bool is_settled = kind.plan || !kind.fault.empty() || kind.plans == most_plans;
  if (options_.mode == Mode::evict || is_settled) return;
  make_plan(tape, root, holds_gradient, kind, options_.effort);
  const bool was_evicted = plan_.evicts && tape.segments().size() == 1;
  if (was_evicted && kind.plan) follow_from_here(tape, *kind.plan);
}

// A pass that was evicting until now goes backward as the plan says. Dropped values that the
// program still holds are then in memory twice; where that is too much, the pass goes on evicting.
void AutoRecompute::follow_from_here(Tape& tape, const Plan& plan) {
  ForwardPass pass(tape, plan, nullptr, first_);
  try {
    tape.enter_again(0, pass.held_values(), pass);
  } catch (const OutOfMemory&) {
    return;
  }
  pass.end();
}

bool AutoRecompute::is_worth_more(const Kind& kind) const {
  const uint64_t earned = work_per_record * kind.ops.size() * static_cast<uint64_t>(kind.passes);
  return kind.plan && kind.is_cut && earned >= kind.more_work;
}

void AutoRecompute::make_plan(const Tape& tape, const Tensor& root, bool holds_gradient, Kind& kind,
                              double effort) {
  const TapeRerun rerun(tape, root, true, holds_gradient);
  if (!rerun.is_possible()) return void(kind.fault = "the device cannot be predicted");
  std::vector<uint32_t> alive;
  for (int64_t i = tape.begin(); i < tape.end(); ++i) {
    if (!tape.find(i)) continue;
    if (i < first_) return void(kind.fault = "records of an earlier pass are alive");
    alive.push_back(static_cast<uint32_t>(i - first_));
  }
  const uint64_t known = rerun.outside_bytes(newest_);
  const uint64_t others = live_ - std::min(live_, known);
  const uint64_t room = options_.budget - std::min(options_.budget, others);
  const uint64_t sure = room - std::min(room, margin(options_.budget));
  if (has_budget() && kind.passes == 1 && eviction_does(rerun, sure)) return;
  ++kind.plans;
  kind.live = live_;
  AutoRecomputeOptions asked = options_;
  asked.effort = effort;
  Search search([] { return endless_dry(default_device()->backend()); }, [&] { rerun.run(); },
                asked);
  std::optional<Candidate> candidate = candidate_within(search, has_budget(), sure);
  if (!candidate) candidate = candidate_within(search, has_budget(), room);
  if (!candidate) {
    const uint64_t peak = search.candidates().back().peak();
    least_ = peak + others;
    kind.fault = fmt::format("its least peak is {}, {} more are live besides it",
                             format_bytes(peak), format_bytes(others));
    return;
  }
  kind.is_cut = effort == options_.effort && search.is_cut();
  kind.more_work = static_cast<uint64_t>(more_effort * static_cast<double>(search.work_limit()));
  const double cost = candidate->cost;
  if (kind.plan && cost >= kind.cost) return;
  kind.plan = spread(candidate->plan, alive, ops_);
  kind.cost = cost;
}

std::vector<std::string> AutoRecompute::kinds() const {
  std::vector<std::string> all;
  for (const Kind& kind : kinds_) {
    std::string text = fmt::format("{} passes of {} records: ", kind.passes, kind.ops.size());
    const auto packed = [](const Kind& k) {
      return std::ranges::count_if(k.plan->offloads, &Plan::Offload::in_8_bits);
    };
    if (kind.plan)
      text += fmt::format("planned, {} segments, {} values to host memory, {} to 8 bits",
                          kind.plan->segments.size(), kind.plan->offloads.size() - packed(kind),
                          packed(kind));
    else
      text += has_budget() ? "evicted" : "kept";
    all.push_back(kind.fault.empty() ? text : text + " (" + kind.fault + ")");
  }
  return all;
}

}  // namespace rw
