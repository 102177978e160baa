#include "planner/forecast/choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <tuple>

#include "core/base/parallel.h"
#include "core/memory/process_memory.h"
#include "planner/forecast/largest.h"
#include "planner/forecast/rank_memory.h"

namespace rw {

namespace {

// The numbers of steps into which `samples` divide, each larger than the one before by a third.
std::vector<int64_t> divisions(int64_t samples) {
  std::vector<int64_t> found;
  for (int64_t steps = 1; steps <= samples; ++steps)
    if (samples % steps == 0 && (found.empty() || 3 * steps >= 4 * found.back()))
      found.push_back(steps);
  return found;
}

// The tokens that MLPs take at a time where memory is short: enough to occupy a device.
constexpr int64_t few_rows = 1024;

// The order of ways by what they need; those that the host has no room for come last.
std::tuple<bool, uint64_t, double> need_of(const Choice& choice, uint64_t host_bytes) {
  return {choice.forecast.memory.host_peak > host_bytes, choice.peak(), choice.seconds};
}

// The bytes that stay on the device between updates, whatever becomes of activations.
uint64_t lasting_bytes(const Choice& choice) {
  const auto& peak = choice.forecast.memory.peak_by_purpose;
  return peak[static_cast<int>(Purpose::parameter)] + peak[static_cast<int>(Purpose::optimizer)];
}

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

StepSettings unbounded(StepSettings settings) {
  settings.budget = 0;
  if (settings.recompute && settings.recompute->evicts) settings.recompute = nullptr;
  settings.evaluation_batch = 0;
  return settings;
}

const std::vector<std::string>& approximate_ways() {
  static const std::vector<std::string> ways = {"last-norm", "8-bit-activations", "8-bit-states",
                                                "batch-norm"};
  return ways;
}

Choices::Choices(const Planner& planner, const StepSettings& asked, ChoiceOptions options)
    : planner_(planner), asked_(unbounded(asked)), options_(std::move(options)) {
  for (const std::string& name : options_.allowed)
    check(is_among(approximate_ways(), name), "memory",
          "ways that are allowed must be of {}, got '{}'", fmt::join(approximate_ways(), ", "),
          name);
  if (options_.bytes == 0) options_.bytes = planner.info().memory_bytes;
  if (options_.host_bytes == 0) options_.host_bytes = spare_host_bytes();
  if (!options_.speed) options_.speed = assumed_speed(planner.info());
  add_groups();
  add_activations();
}

Choices::Choices(const Choices& known, ChoiceOptions options)
    : planner_(known.planner_),
      asked_(known.asked_),
      options_(std::move(options)),
      activations_(known.activations_),
      plain_(known.plain_),
      plans_(known.plans_),
      rough_(known.rough_) {
  add_groups();
  const size_t unplanned = activations_.size() - (plans_ ? plans_->size() : 0);
  if (allows("8-bit-activations") != known.allows("8-bit-activations")) {
    plans_.reset();
    activations_.resize(unplanned);
  }
  for (const auto& [way, choice] : known.measured_) {
    const auto group = std::ranges::find(groups_, known.groups_[way.first]);
    if (way.second < activations_.size())
      measured_.emplace(Way{group - groups_.begin(), way.second}, choice);
  }
}

bool Choices::may(const char* way) const {
  return planner_.program().words.contains(way) && !is_among(options_.fixed, way);
}

bool Choices::allows(std::string_view way) const {
  return is_among(options_.allowed, way);
}

bool Choices::applies(const std::string& approximate) const {
  if (!planner_.trains()) return false;
  if (approximate == "last-norm") return may("fused") && planner_.can_fuse(asked_);
  if (approximate == "8-bit-activations") return may("budget") && !asked_.recompute;
  if (approximate == "8-bit-states") return may("8-bit-states");
  return may("batch") && planner_.program().has_batch_statistics;
}

bool Choices::has_bus() const {
  return planner_.info().host_bandwidth.gains();
}

// The settings that were asked for come first, here and in add_groups().
void Choices::add_activations() {
  activations_ = {asked_};
  if (!planner_.trains()) return;
  if (may("block")) {
    const bool is_plain = asked_.checkpoint == "none" && !asked_.recompute;
    if (!is_plain) activations_.push_back(asked_.plain());
    plain_ = activations_.size() - 1;
    StepSettings block = asked_.plain();
    block.checkpoint = "block";
    block.checkpoint_every = 1;
    activations_.push_back(block);
    block.host_boundaries = true;
    if (may("boundaries") && has_bus()) activations_.push_back(block);
    if (!may("mlp-rows")) return;
    for (size_t i = plain_ + 1, n = activations_.size(); i < n; ++i) {
      activations_.push_back(activations_[i]);
      activations_.back().mlp_rows = few_rows;
    }
  }
}

void Choices::add_groups() {
  const auto add_once = [](auto& list, const auto& value) {
    if (std::ranges::find(list, value) == list.end()) list.push_back(value);
  };
  std::vector<std::string> offloads = {asked_.offload};
  if (may("offload") && planner_.can_offload(asked_))
    for (const std::string word :
         {"none", "states", "states+updates", "parameters", "parameters+updates"})
      if (options_.speed->host.updates > 0 || !word.ends_with("+updates")) add_once(offloads, word);
  if (may("offload") && planner_.program().frozen_file)
    for (const char* word : {"none", "file"}) add_once(offloads, std::string(word));
  std::vector<int> fused = {asked_.fused_update};
  if (may("fused") && planner_.can_fuse(asked_)) {
    for (const int passes : {0, 2}) add_once(fused, passes);
    if (allows("last-norm")) add_once(fused, 1);
  }
  const int64_t samples = asked_.batch * asked_.accumulate;
  std::vector<int64_t> steps = {asked_.accumulate};
  const bool keeps_batch = planner_.program().has_batch_statistics && !allows("batch-norm");
  if (planner_.trains() && may("batch") && !keeps_batch)
    for (const int64_t n : divisions(samples)) add_once(steps, n);
  for (const int passes : fused)
    for (const std::string& offload : offloads)
      for (const int64_t n : steps) {
        if (passes > 0 && n > 1) continue;
        StepSettings& group = groups_.emplace_back(asked_);
        group.offload = offload;
        group.fused_update = passes;
        group.batch = samples / n;
        group.accumulate = static_cast<uint32_t>(n);
      }
  if (!allows("8-bit-states") || !applies("8-bit-states")) return;
  for (size_t i = 0, n = groups_.size(); i < n; ++i) {
    groups_.push_back(groups_[i]);
    groups_.back().states_in_8_bits = true;
  }
}

AutoRecomputeOptions Choices::planning() const {
  return {.host_bytes = has_bus() ? options_.host_bytes : 0,
          .keep_8_bits = allows("8-bit-activations"),
          .on_progress = options_.on_progress};
}

// Plans are made where activations have most of the memory, for the largest steps: they hold for
// any, because the ops are the same. A rough search does: the way that is chosen is planned again.
const std::vector<size_t>& Choices::plans() {
  if (plans_) return *plans_;
  plans_.emplace();
  if (!planner_.trains() || !may("budget") || asked_.recompute) return *plans_;
  const auto leanest = std::ranges::max_element(groups_, {}, [](const StepSettings& s) {
    return std::tuple(s.batch, s.fused_update > 0, s.offloads_parameters() || s.offload == "file",
                      s.offload.starts_with("states"), s.states_in_8_bits);
  });
  AutoRecomputeOptions rough = planning();
  rough.effort = 0.1;
  const std::shared_ptr<Search> search(rough_ ? new Search(*rough_, rough)
                                              : new Search(planner_.search(*leanest, rough)));
  rough_ = search;
  for (const Candidate& candidate : search->candidates()) {
    if (candidate.plan.is_plain()) continue;
    plans_->push_back(activations_.size());
    activations_.push_back(asked_.plain());
    activations_.back().recompute = std::make_shared<const Plan>(candidate.plan);
  }
  return *plans_;
}

StepSettings Choices::settings_of(Way way) const {
  StepSettings settings = activations_[way.second];
  const StepSettings& group = groups_[way.first];
  settings.offload = group.offload;
  settings.fused_update = group.fused_update;
  settings.states_in_8_bits = group.states_in_8_bits;
  settings.batch = group.batch;
  settings.accumulate = group.accumulate;
  return settings;
}

Choice Choices::measure(const StepSettings& settings) const {
  for (const auto& [way, known] : measured_)
    if (known.settings == settings) return known;
  Choice choice{.settings = settings};
  for (const StepSettings& one : kinds_of_ranks(settings)) {
    Forecast found = planner_.measure(one);
    if (found.memory.peak < choice.peak()) continue;
    choice.forecast = std::move(found);
    choice.settings.rank = one.rank;
  }
  choice.settings.rank = settings.rank;
  choice.forecast.steps.clear();  // which nobody needs, and which are large
  choice.seconds = options_.speed->seconds(choice.forecast.work, choice.forecast.from_files);
  choice.options = planner_.program().changes(asked_, settings, choice.peak());
  return choice;
}

const Choice& Choices::measured(Way way) {
  const auto found = measured_.find(way);
  return found != measured_.end() ? found->second
                                  : measured_.emplace(way, measure(settings_of(way))).first->second;
}

void Choices::measure_together(std::vector<Way> ways) {
  std::erase_if(ways, [&](Way way) { return measured_.contains(way); });
  std::vector<Choice> found(ways.size());
  parallel_for(ways.size(), options_.threads,
               [&](size_t i) { found[i] = measure(settings_of(ways[i])); });
  for (size_t i = 0; i < ways.size(); ++i) measured_.emplace(ways[i], std::move(found[i]));
}

bool Choices::fits(const Choice& choice, uint64_t bytes) const {
  return choice.peak() <= bytes && choice.forecast.memory.host_peak <= options_.host_bytes;
}

// The activations that are no plans, and the plan that needs least.
std::vector<size_t> Choices::lean_activations() {
  const std::vector<size_t>& plans = this->plans();
  std::vector<size_t> lean;
  for (size_t i = 0; i < activations_.size() - plans.size(); ++i) lean.push_back(i);
  if (!plans.empty()) lean.push_back(plans.back());
  return lean;
}

// Tries the ways of a group that may be quicker than the best one so far. Keeping everything takes
// least time; plans cost more the less they need. Segments of blocks are like plans, but may need a
// little less than any of these.
void Choices::try_group(size_t group, uint64_t bytes, double most_seconds,
                        std::optional<Way>& best) {
  const auto try_way = [&](size_t activations) {
    const Way way{group, activations};
    const Choice& choice = measured(way);
    const bool does_fit = fits(choice, bytes);
    if (does_fit && choice.seconds < (best ? measured(*best).seconds : most_seconds)) best = way;
    return does_fit;
  };
  const Choice& plain = measured({group, plain_});
  if (try_way(plain_) || plain.forecast.memory.host_peak > options_.host_bytes) return;
  if (!plain.settings.offloads_parameters() && lasting_bytes(plain) > bytes) return;
  if (plain_ > 0) try_way(0);
  const std::vector<size_t>& plans = this->plans();
  if (plans.empty() || !try_way(plans.back())) {
    if (!plans.empty() && measured({group, plans.back()}).peak() > bytes + bytes / 8) return;
    std::vector<Way> ways;
    for (const size_t i : lean_activations()) ways.push_back({group, i});
    measure_together(ways);
    for (const Way& way : ways) try_way(way.second);
    return;
  }
  size_t low = 0, high = plans.size() - 1;  // the latter fits
  while (low < high) {
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
  if (!choice.settings.recompute || choice.settings.recompute == asked_.recompute) return choice;
  StepSettings settings = choice.settings;
  try {
    if (!search_ || searched_ != settings.plain())
      search_.reset(new Search(planner_.search(settings, planning().of_a_run())));
    searched_ = settings.plain();
    search_->budget(bytes);  // looks near it
    const auto seconds = [&](const Candidate& candidate) {
      return candidate.peak() > bytes ? no_bound : options_.speed->seconds(candidate.forecast.work);
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
  if (const auto found = measured_.find({group, plain_}); found != measured_.end())
    return found->second.seconds;
  const StepSettings& own = groups_[group];
  const bool is_host_slower = options_.speed->host.updates <= options_.speed->bytes;
  double least = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const StepSettings& other = groups_[i];
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
std::optional<Choices::Way> Choices::best_within(uint64_t bytes, double most_seconds) {
  std::optional<Way> best;
  std::vector<size_t> left(groups_.size());
  std::iota(left.begin(), left.end(), 0);
  while (!left.empty()) {
    const auto next =
        std::ranges::min_element(left, {}, [&](size_t group) { return least_seconds(group); });
    if (least_seconds(*next) >= (best ? measured(*best).seconds : most_seconds)) break;
    if (!measured_.contains({*next, plain_})) {
      measured({*next, plain_});
      continue;
    }
    try_group(*next, bytes, most_seconds, best);
    left.erase(next);
  }
  if (!best && most_seconds == no_bound)
    if (const Way least = least_way(options_.host_bytes); fits(measured(least), bytes))
      best = least;
  return best;
}

std::optional<Choice> Choices::quickest() {
  // Blocks are larger than what lies in them.
  for (uint64_t bytes = options_.bytes; bytes > options_.bytes / 8 * 7; bytes -= bytes / 64) {
    const std::optional<Way> best = best_within(bytes);
    if (!best) return std::nullopt;
    const Choice choice = planned_again(measured(*best), bytes);
    try {
      planner_.forecast(choice.settings.shortened(),
                        {.memory = DryMemory::blocks_of_device, .memory_limit = options_.bytes});
      return choice;
    } catch (const OutOfMemory&) {  // less than that has room
    }
  }
  return std::nullopt;
}

Choices::Way Choices::least_way(uint64_t host_bytes) {
  std::vector<Way> ways;
  const std::vector<size_t> lean = lean_activations();
  for (size_t group = 0; group < groups_.size(); ++group)
    for (const size_t i : lean) ways.push_back({group, i});
  measure_together(ways);
  return *std::ranges::min_element(ways, {},
                                   [&](Way way) { return need_of(measured(way), host_bytes); });
}

Choice Choices::least(uint64_t host_bytes) {
  return measured(least_way(host_bytes));
}

std::vector<Choice> Choices::front() {
  plans();
  std::vector<Way> ways;
  for (size_t group = 0; group < groups_.size(); ++group)
    for (size_t i = 0; i < activations_.size(); ++i) ways.push_back({group, i});
  measure_together(ways);
  std::vector<Choice> all, front;
  for (const auto& [way, choice] : measured_) all.push_back(choice);
  std::ranges::stable_sort(all, {}, &Choice::seconds);
  for (Choice& choice : all)
    if (choice.forecast.memory.host_peak <= options_.host_bytes &&
        (front.empty() || choice.peak() < front.back().peak()))
      front.push_back(std::move(choice));
  return front;
}

std::vector<std::pair<std::string, Choice>> Choices::gains(const Choice* chosen) const {
  std::vector<std::pair<std::string, Choice>> found;
  for (const std::string& name : approximate_ways()) {
    if (allows(name) || !applies(name)) continue;
    ChoiceOptions more = options_;
    more.allowed.push_back(name);
    more.on_progress = {};
    Choices wider(*this, more);
    const double most = chosen ? 0.99 * chosen->seconds : no_bound;
    if (const std::optional<Way> best = wider.best_within(options_.bytes, most))
      found.emplace_back(name, wider.measured(*best));
  }
  return found;
}

int64_t Choices::longest(const Choice& choice) const {
  const std::optional<Choice> found = longest_of(choice);
  return found ? found->settings.length : 0;
}

std::optional<Choice> Choices::longest_of(const Choice& choice) const {
  constexpr int64_t step = 64;
  const int64_t most = planner_.program().longest / step;
  if (most == 0 || !may("length")) return std::nullopt;
  const int64_t guess = std::clamp<int64_t>(
      static_cast<int64_t>(static_cast<double>(choice.settings.length) *
                           static_cast<double>(options_.bytes) /
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
    if (!fits(found, options_.bytes)) return std::max(peak, options_.bytes + 1);
    if (!longest || settings.length > longest->settings.length) longest = std::move(found);
    return peak;
  };
  largest_within(needs, options_.bytes, guess / grain);
  return longest;
}

// The group whose ways need least where samples are long: the smallest steps, and as much in host
// memory as that has room for.
size_t Choices::leanest_group() {
  std::vector<size_t> order(groups_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    const StepSettings& s = groups_[i];
    return std::tuple(s.batch, !s.offloads_parameters() && s.offload != "file", s.offload == "none",
                      !s.updates_on_host(), -s.fused_update, !s.states_in_8_bits);
  });
  const auto has_room = [&](size_t group) {
    return measured({group, plain_}).forecast.memory.host_peak <= options_.host_bytes;
  };
  const auto found = std::ranges::find_if(order, has_room);
  return found == order.end() ? order.front() : *found;
}

std::optional<Choice> Choices::longest() {
  constexpr int64_t long_sample = 8192;  // of which activations have most of the memory
  const int64_t length = std::min(planner_.program().longest, long_sample);
  if (length == 0 || !may("length")) return std::nullopt;
  const size_t group = leanest_group();
  std::optional<Choice> best;
  for (const size_t i : lean_activations()) {
    StepSettings settings = settings_of({group, i});
    const bool has_leaner = has_bus() && may("boundaries") && may("block") && i > plain_ &&
                            !settings.recompute && !settings.host_boundaries;
    if (has_leaner || (i == plain_ && lean_activations().size() > 1)) continue;
    settings.length = length;
    Choice choice = measure(settings);
    if (!best || need_of(choice, options_.host_bytes) < need_of(*best, options_.host_bytes))
      best = std::move(choice);
  }
  return longest_of(*best);
}

}  // namespace rw
