#include "planner/choices/choices.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <tuple>

#include "core/base/parallel.h"
#include "planner/forecast/largest.h"
#include "planner/forecast/rank_memory.h"
#include "planner/forecast/work_sums.h"

namespace rw {

namespace {

// The order of ways by what they need; those that the host has no room for come last.
std::tuple<bool, uint64_t, double> need_of(const Choice& choice, uint64_t host_bytes) {
  return {choice.forecast.memory.host_peak > host_bytes, choice.peak(), choice.seconds};
}

// The bytes that stay on the device during a step, whatever becomes of activations: gradients, too,
// where a step adds to those of the one before.
uint64_t lasting_bytes(const Choice& plain) {
  const StepSettings& s = plain.settings;
  if (s.offloads_parameters()) return 0;
  const auto& peak = plain.forecast.memory.peak_by_purpose;
  const auto of = [&](Purpose purpose) { return peak[static_cast<size_t>(purpose)]; };
  return of(Purpose::parameter) + of(Purpose::optimizer) +
         (s.accumulate > 1 && s.fused_update == 0 ? of(Purpose::gradient) : 0);
}

}  // namespace

Choices::Choices(const Choices& known, ChoiceOptions options)
    : ways_(known.ways_.planner(), known.ways_.asked(), std::move(options)) {
  if (ways_.allows("8-bit-activations") == known.ways_.allows("8-bit-activations")) {
    ways_.take_activations(known.ways_);
    plans_ = known.plans_;
  }
  rough_ = known.rough_;
  const std::vector<StepSettings>& groups = ways_.groups();
  for (const auto& [way, choice] : known.measured_) {
    const auto group = std::ranges::find(groups, known.ways_.groups()[way.first]);
    if (way.second < ways_.activations().size())
      measured_.emplace(Way{group - groups.begin(), way.second}, choice);
  }
}

AutoRecomputeOptions Choices::planning() const {
  return {.host_bytes = has_bus() ? options().host_bytes : 0,
          .keep_8_bits = ways_.allows("8-bit-activations"),
          .on_progress = options().on_progress};
}

// Plans are made where activations have most of the memory, for the largest steps: they hold for
// any, because the ops are the same. A rough search does: the way that is chosen is planned again.
const std::vector<size_t>& Choices::plans() {
  if (plans_) return *plans_;
  plans_.emplace();
  if (!planner().trains() || !ways_.may("budget") || ways_.asked().recompute) return *plans_;
  const auto leanest = std::ranges::max_element(ways_.groups(), {}, [](const StepSettings& s) {
    return std::tuple(s.batch, s.fused_update > 0, s.offloads_parameters() || s.offload == "file",
                      s.offload.starts_with("states"), s.states_in_8_bits);
  });
  AutoRecomputeOptions rough = planning();
  rough.effort = 0.1;
  const std::shared_ptr<Search> search(rough_ ? new Search(*rough_, rough)
                                              : new Search(planner().search(*leanest, rough)));
  rough_ = search;
  for (const Candidate& candidate : search->candidates()) {
    if (candidate.plan.is_plain()) continue;
    plans_->push_back(ways_.activations().size());
    ways_.add_plan(candidate.plan);
  }
  return *plans_;
}

Choice Choices::measure(const StepSettings& settings) const {
  for (const auto& [way, known] : measured_)
    if (known.settings == settings) return known;
  Choice choice{.settings = settings};
  for (const StepSettings& one : kinds_of_ranks(settings)) {
    Forecast found = planner().measure(one);
    if (found.memory.peak < choice.peak()) continue;
    choice.forecast = std::move(found);
    choice.settings.rank = one.rank;
  }
  choice.settings.rank = settings.rank;
  choice.forecast.steps.clear();  // which nobody needs, and which are large
  choice.seconds = options().speed->seconds(choice.forecast.work, choice.forecast.from_files);
  choice.options = planner().program().changes(ways_.asked(), settings, choice.peak());
  return choice;
}

const Choice& Choices::measured(Way way) {
  const auto found = measured_.find(way);
  return found != measured_.end()
             ? found->second
             : measured_.emplace(way, measure(ways_.settings(way))).first->second;
}

void Choices::measure_together(std::vector<Way> ways) {
  std::erase_if(ways, [&](Way way) { return measured_.contains(way); });
  std::vector<Choice> found(ways.size());
  parallel_for(ways.size(), options().threads,
               [&](size_t i) { found[i] = measure(ways_.settings(ways[i])); });
  for (size_t i = 0; i < ways.size(); ++i) measured_.emplace(ways[i], std::move(found[i]));
}

bool Choices::fits(const Choice& choice, uint64_t bytes) const {
  return choice.peak() <= bytes && choice.forecast.memory.host_peak <= options().host_bytes;
}

// The activations that are no plans, and the plan that needs least.
std::vector<size_t> Choices::lean_activations() {
  const std::vector<size_t>& plans = this->plans();
  std::vector<size_t> lean;
  for (size_t i = 0; i < ways_.activations().size() - plans.size(); ++i) lean.push_back(i);
  if (!plans.empty()) lean.push_back(plans.back());
  return lean;
}

// The seconds of a way as far as other groups show: what its plan, or a cheaper one, does more than
// keeping everything.
double Choices::likely_seconds(size_t group, size_t activations) const {
  const Forecast& plain = measured_.at({group, ways_.plain()}).forecast;
  double least = 0;
  for (const auto& [way, known] : measured_) {
    if (way.second > activations || !known.settings.recompute || way.second < plans_->front())
      continue;
    const WorkByPhase more =
        work_since(known.forecast.work, measured_.at({way.first, ways_.plain()}).forecast.work);
    const WorkByPhase work = with_work(plain.work, more);
    least = std::max(least, options().speed->seconds(work, plain.from_files));
  }
  return least;
}

// Tries the ways of a group that may be quicker than the best one so far. Keeping everything takes
// least time; plans cost more the less they need. Segments of blocks are like plans, but may need a
// little less than any of these.
void Choices::try_group(size_t group, uint64_t bytes, double most_seconds, bool is_thorough,
                        std::optional<Way>& best) {
  const auto bound = [&] { return best ? measured(*best).seconds : most_seconds; };
  const auto try_way = [&](size_t activations) {
    const Way way{group, activations};
    const Choice& choice = measured(way);
    const bool does_fit = fits(choice, bytes);
    if (does_fit && choice.seconds < bound()) best = way;
    return does_fit;
  };
  if (try_way(ways_.plain()) ||
      needs_at_least(group, options().host_bytes) > std::pair(false, bytes))
    return;
  if (ways_.plain() > 0) try_way(0);
  const std::vector<size_t>& plans = this->plans();
  size_t high = plans.size();
  while (high > 0 && likely_seconds(group, plans[high - 1]) > 1.003 * bound()) --high;
  if (high < plans.size() && (high == 0 || !try_way(plans[high - 1]))) return;
  if (high == 0 || !try_way(plans[high - 1])) {
    if (!is_thorough && !plans.empty() &&
        measured({group, plans.back()}).peak() > bytes + bytes / 8)
      return;
    std::vector<Way> ways;
    for (const size_t i : lean_activations()) ways.push_back({group, i});
    measure_together(ways);
    for (const Way& way : ways) try_way(way.second);
    return;
  }
  size_t low = 0;
  for (--high; low < high;) {  // the latter fits
    const size_t middle = (low + high) / 2;
    if (try_way(plans[middle]))
      high = middle;
    else
      low = middle + 1;
  }
}

// Plans again for the settings that were chosen, so that their budget given by hand leads to the
// same plan. The search counts what is computed and copied; here, what hides behind the other takes
// no time.
Choice Choices::planned_again(const Choice& choice, uint64_t bytes) {
  if (!choice.settings.recompute || choice.settings.recompute == ways_.asked().recompute)
    return choice;
  StepSettings settings = choice.settings;
  try {
    if (!search_ || searched_ != settings.plain())
      search_.reset(new Search(planner().search(settings, planning().of_a_run())));
    searched_ = settings.plain();
    search_->budget(bytes);  // looks near it
    const auto seconds = [&](const Candidate& candidate) {
      return candidate.peak() > bytes ? no_bound
                                      : options().speed->seconds(candidate.forecast.work);
    };
    const auto best = std::ranges::min_element(search_->candidates(), {}, seconds);
    settings.recompute = std::make_shared<const Plan>(best->plan);
  } catch (const OutOfMemory&) {
    return choice;
  }
  const Choice again = measure(settings);
  return fits(again, bytes) ? again : choice;
}

// The seconds that the ways of a group take at least: those of keeping everything, or before these
// are measured, of groups that have less to do: fewer steps of several, nothing on the bus, one
// pass.
double Choices::least_seconds(size_t group) const {
  if (const auto found = measured_.find({group, ways_.plain()}); found != measured_.end())
    return found->second.seconds;
  const StepSettings& own = ways_.groups()[group];
  const bool is_host_slower = options().speed->host.updates <= options().speed->bytes;
  double least = 0;
  for (size_t i = 0; i < ways_.groups().size(); ++i) {
    const StepSettings& other = ways_.groups()[i];
    StepSettings same = own;
    if (other.offload == "none" && (!own.updates_on_host() || is_host_slower))
      same.offload = other.offload;
    if (own.fused_update == 2 && other.fused_update == 0) same.fused_update = 0;
    if (other.accumulate > 1 && other.accumulate < own.accumulate)
      same.batch = other.batch, same.accumulate = other.accumulate;
    if (same == other && i != group) least = std::max(least, least_seconds(i));
  }
  return least;
}

// Looks at groups by rising least_seconds().
std::optional<Choices::Way> Choices::best_within(uint64_t bytes, double most_seconds,
                                                 bool is_thorough) {
  std::optional<Way> best;
  std::vector<size_t> left(ways_.groups().size());
  std::iota(left.begin(), left.end(), 0);
  while (!left.empty()) {
    const auto next =
        std::ranges::min_element(left, {}, [&](size_t group) { return least_seconds(group); });
    if (least_seconds(*next) >= (best ? measured(*best).seconds : most_seconds)) break;
    if (!measured_.contains({*next, ways_.plain()})) {
      measured({*next, ways_.plain()});
      continue;
    }
    try_group(*next, bytes, most_seconds, is_thorough, best);
    left.erase(next);
  }
  if (!best && most_seconds == no_bound && !is_thorough) return best_within(bytes, no_bound, true);
  return best;
}

std::optional<Choice> Choices::quickest() {
  // Blocks are larger than what lies in them.
  for (uint64_t bytes = options().bytes; bytes > options().bytes / 8 * 7; bytes -= bytes / 64) {
    const std::optional<Way> best = best_within(bytes);
    if (!best) return std::nullopt;
    const Choice choice = planned_again(measured(*best), bytes);
    try {
      planner().forecast(choice.settings.shortened(),
                         {.memory = DryMemory::blocks_of_device, .memory_limit = options().bytes});
      return choice;
    } catch (const OutOfMemory&) {  // less than that has room
    }
  }
  return std::nullopt;
}

// Whether all ways of a group need more of the host than it has, and the least that they need on
// the device, as far as keeping everything shows.
std::pair<bool, uint64_t> Choices::needs_at_least(size_t group, uint64_t host_bytes) {
  const Choice& plain = measured({group, ways_.plain()});
  return {plain.forecast.memory.host_peak > host_bytes, lasting_bytes(plain)};
}

// Whether a group of smaller steps needs no more: gradients of several steps lie there anyway, or
// in host memory, where that has room for them.
bool Choices::has_smaller_steps(size_t group, uint64_t host_bytes) {
  const StepSettings& own = ways_.groups()[group];
  if (own.accumulate == 1 && !own.offloads_parameters()) return false;
  for (size_t i = 0; i < ways_.groups().size(); ++i) {
    StepSettings same = ways_.groups()[i];
    if (same.batch >= own.batch || same.fused_update > 0) continue;
    same.batch = own.batch, same.accumulate = own.accumulate, same.fused_update = own.fused_update;
    const bool has_room =
        needs_at_least(i, host_bytes).first <= needs_at_least(group, host_bytes).first;
    if (same == own && has_room) return true;
  }
  return false;
}

Choices::Way Choices::least_way(uint64_t host_bytes) {
  const std::vector<size_t> lean = lean_activations();
  std::vector<size_t> order(ways_.groups().size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](size_t group) { return needs_at_least(group, host_bytes); });
  const auto need = [&](Way way) { return need_of(measured(way), host_bytes); };
  std::optional<Way> best;
  for (const size_t group : order) {
    const auto [is_too_much, bytes] = needs_at_least(group, host_bytes);
    if (best && std::tuple(is_too_much, bytes, 0.0) > need(*best)) break;
    if (has_smaller_steps(group, host_bytes)) continue;
    std::vector<Way> ways;
    for (const size_t i : lean) ways.push_back({group, i});
    measure_together(ways);
    const Way least = *std::ranges::min_element(ways, {}, need);
    if (!best || need(least) < need(*best)) best = least;
  }
  return *best;
}

Choice Choices::least(uint64_t host_bytes) {
  return measured(least_way(host_bytes));
}

std::vector<Choice> Choices::front() {
  plans();
  std::vector<Way> ways;
  for (size_t group = 0; group < ways_.groups().size(); ++group)
    for (size_t i = 0; i < ways_.activations().size(); ++i) ways.push_back({group, i});
  measure_together(ways);
  std::vector<Choice> all, front;
  for (const auto& [way, choice] : measured_) all.push_back(choice);
  std::ranges::stable_sort(all, {}, &Choice::seconds);
  for (Choice& choice : all)
    if (choice.forecast.memory.host_peak <= options().host_bytes &&
        (front.empty() || choice.peak() < front.back().peak()))
      front.push_back(std::move(choice));
  return front;
}

std::vector<std::pair<std::string, Choice>> Choices::gains(const Choice* chosen) const {
  const std::vector<std::string>& names = approximate_ways();
  std::vector<std::optional<Choice>> gained(names.size());
  parallel_for(names.size(), options().threads, [&](size_t i) {
    if (ways_.allows(names[i]) || !ways_.applies(names[i])) return;
    ChoiceOptions more = options();
    more.allowed.push_back(names[i]);
    more.on_progress = {};
    Choices wider(*this, more);
    const double most = chosen ? 0.99 * chosen->seconds : no_bound;
    const std::optional<Way> best = wider.best_within(options().bytes, most);
    if (!best) return;
    const Choice& choice = wider.measured(*best);
    if (chosen || planner().fits_in_blocks(choice.settings, options().bytes)) gained[i] = choice;
  });
  std::vector<std::pair<std::string, Choice>> found;
  for (size_t i = 0; i < names.size(); ++i)
    if (gained[i]) found.emplace_back(names[i], std::move(*gained[i]));
  return found;
}

int64_t Choices::longest(const Choice& choice) const {
  const std::optional<Choice> found = longest_of(choice);
  return found ? found->settings.length : 0;
}

std::optional<Choice> Choices::longest_of(const Choice& choice) const {
  constexpr int64_t step = 64;
  const int64_t most = planner().program().longest / step;
  if (most == 0 || !ways_.may("length")) return std::nullopt;
  const int64_t guess = std::clamp<int64_t>(
      static_cast<int64_t>(static_cast<double>(choice.settings.length) *
                           static_cast<double>(options().bytes) /
                           static_cast<double>(std::max<uint64_t>(choice.peak(), 1))) /
          step,
      1, most);
  const int64_t grain =
      std::max<int64_t>(1, guess / 64);  // of steps: dry runs of long ones are long
  std::optional<Choice> longest;
  const auto needs = [&](int64_t n) -> std::optional<uint64_t> {
    if (n * grain > most) return std::nullopt;
    StepSettings settings = choice.settings;
    settings.length = n * grain * step;
    Choice found = measure(settings);
    const uint64_t peak = found.peak();
    if (!fits(found, options().bytes)) return std::max(peak, options().bytes + 1);
    if (!longest || settings.length > longest->settings.length) longest = std::move(found);
    return peak;
  };
  largest_within(needs, options().bytes, guess / grain);
  return longest;
}

// The group whose ways need least where samples are long: the smallest steps, and as much in host
// memory as that has room for.
std::optional<size_t> Choices::leanest_group() {
  std::vector<size_t> order(ways_.groups().size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    const StepSettings& s = ways_.groups()[i];
    return std::tuple(s.batch, !s.offloads_parameters() && s.offload != "file", s.offload == "none",
                      !s.updates_on_host(), -s.fused_update, !s.states_in_8_bits);
  });
  const auto may_fit = [&](size_t group) {
    return needs_at_least(group, options().host_bytes) <= std::pair(false, options().bytes);
  };
  const auto found = std::ranges::find_if(order, may_fit);
  return found == order.end() ? std::nullopt : std::optional(*found);
}

std::optional<Choice> Choices::longest() {
  constexpr int64_t long_sample = 8192;  // of which activations have most of the memory
  const int64_t length = std::min(planner().program().longest, long_sample);
  if (length == 0 || !ways_.may("length")) return std::nullopt;
  const std::optional<size_t> group = leanest_group();
  if (!group) return std::nullopt;
  std::vector<StepSettings> leanest;
  for (const size_t i : lean_activations()) {
    StepSettings settings = ways_.settings({*group, i});
    const bool has_leaner = has_bus() && ways_.may("boundaries") && ways_.may("block") &&
                            i > ways_.plain() && !settings.recompute && !settings.host_boundaries;
    if (has_leaner || (i == ways_.plain() && lean_activations().size() > 1)) continue;
    settings.length = length;
    leanest.push_back(settings);
  }
  std::vector<Choice> found(leanest.size());
  parallel_for(leanest.size(), options().threads,
               [&](size_t i) { found[i] = measure(leanest[i]); });
  std::optional<Choice> most = longest_of(*std::ranges::min_element(
      found, {}, [&](const Choice& choice) { return need_of(choice, options().host_bytes); }));
  // Blocks are larger than what lies in them, but hardly twice as large.
  const int64_t least = most ? most->settings.length / 2 : 0;
  const uint64_t bytes = options().bytes;
  while (most && most->peak() > bytes / 2 && !planner().fits_in_blocks(most->settings, bytes)) {
    StepSettings shorter = most->settings;
    shorter.length = shorter.length * 7 / 8 / 64 * 64;
    most = shorter.length > least ? std::optional(measure(shorter)) : std::nullopt;
  }
  return most;
}

}  // namespace rw
