#include "planner/choices/ways.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/memory/process_memory.h"

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

Ways::Ways(const Planner& planner, const StepSettings& asked, ChoiceOptions options)
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

bool Ways::may(const char* change) const {
  return planner_.program().words.contains(change) && !is_among(options_.fixed, change);
}

bool Ways::allows(std::string_view approximate) const {
  return is_among(options_.allowed, approximate);
}

bool Ways::applies(const std::string& approximate) const {
  if (!planner_.trains()) return false;
  if (approximate == "last-norm") return may("fused") && planner_.can_fuse(asked_);
  if (approximate == "8-bit-activations") return may("budget") && !asked_.recompute;
  if (approximate == "8-bit-states") return may("8-bit-states");
  return may("batch") && planner_.program().has_batch_statistics;
}

bool Ways::has_bus() const {
  return planner_.info().host_bandwidth.gains();
}

// The settings that were asked for come first, here and in add_groups().
void Ways::add_activations() {
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

void Ways::add_groups() {
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

StepSettings Ways::settings(Way way) const {
  StepSettings settings = activations_[way.second];
  const StepSettings& group = groups_[way.first];
  settings.offload = group.offload;
  settings.fused_update = group.fused_update;
  settings.states_in_8_bits = group.states_in_8_bits;
  settings.batch = group.batch;
  settings.accumulate = group.accumulate;
  return settings;
}

void Ways::add_plan(const Plan& plan) {
  activations_.push_back(asked_.plain());
  activations_.back().recompute = std::make_shared<const Plan>(plan);
}

}  // namespace rw
