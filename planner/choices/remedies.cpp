#include "planner/choices/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace rw {

namespace {

// The memory that remedies may use: the smaller of limit and budget, 0 if there is neither.
uint64_t limit_of(const StepSettings& settings, uint64_t memory_limit) {
  if (!settings.budget || !memory_limit) return std::max(settings.budget, memory_limit);
  return std::min(settings.budget, memory_limit);
}

class RemedySearch {
 public:
  RemedySearch(const Planner& planner, const StepSettings& settings, uint64_t memory_limit)
      : planner_(planner),
        words_(planner.program().words),
        limit_(limit_of(settings, memory_limit)),
        now_(unbounded(settings)) {}

  // The least that the current settings can do with; nothing where nobody trains.
  const std::optional<Choice>& least() const { return least_; }

  std::vector<Choice> run() {
    StepSettings block = now_.plain(), half = now_;
    block.checkpoint = "block";
    block.checkpoint_every = 1;
    half.dtype = DType::f16;
    const bool trains = planner_.trains();
    const bool can_shard = trains && now_.ranks > 1 && now_.shard == "none" && can("shard");
    const bool can_block = trains && now_.checkpoint == "none" && can("block");
    const bool can_half = !is_half(now_.dtype) && can("f16");
    if (can_block) try_out(words_.at("block"), block);
    if (can_half) try_out(words_.at("f16"), half);
    if (can_shard) {
      StepSettings sharded = now_;
      sharded.shard = "states";
      try_out(words_.at("shard"), sharded);
    }
    try_smaller_batch();
    if (trains) try_choices(now_, "");
    if (trains && can_half) try_choices(half, words_.at("f16") + " ");
    return std::move(found_);
  }

 private:
  bool can(const char* change) const { return words_.contains(change); }

  uint64_t bytes() const {
    const uint64_t memory = planner_.info().memory_bytes;
    return limit_ ? std::min(limit_, memory) : memory;
  }

  void try_out(const std::string& options, const StepSettings& settings) {
    try {
      found_.push_back({settings, options, planner_.forecast(settings, {.memory_limit = limit_})});
    } catch (const OutOfMemory&) {  // no remedy
    }
  }

  // Finds the quickest of all ways to take the same update.
  void try_choices(const StepSettings& settings, const std::string& options) {
    Choices choices(planner_, settings, {.bytes = bytes()});
    if (!least_) least_ = choices.least();
    const std::optional<Choice> quickest = choices.quickest();
    if (!quickest || quickest->options.empty()) return;
    const std::string all = options + quickest->options;
    if (std::ranges::find(found_, all, &Choice::options) == found_.end())
      try_out(all, quickest->settings);
  }

  // Finds the largest batch per step that fits, with accumulation that keeps the samples per
  // update: exactly, if a batch not much smaller divides them, otherwise with a few more.
  void try_smaller_batch() {
    StepSettings settings = now_;
    if (settings.batch == 1 || settings.fused_update > 0 || !can("batch")) return;
    const int64_t all = settings.batch * settings.accumulate;
    const int64_t largest =
        std::min(all, planner_.largest_batch(settings, bytes(), settings.batch));
    if (largest == 0) return;
    int64_t batch = largest;
    while (batch > largest / 2 && all % batch != 0) --batch;
    if (all % batch != 0 || batch == 0)
      batch = (all + (all - 1) / largest) / ((all - 1) / largest + 1);
    const bool trains = planner_.trains();
    settings.batch = trains ? batch : largest;
    settings.accumulate = trains ? static_cast<uint32_t>((all + batch - 1) / batch) : 1;
    const auto ranks = static_cast<uint32_t>(settings.ranks);  // words are of the whole run
    try_out(
        fmt::format(fmt::runtime(words_.at("batch")), settings.batch, settings.accumulate * ranks),
        settings);
  }

  const Planner& planner_;
  const std::map<std::string, std::string>& words_;
  uint64_t limit_;
  StepSettings now_;
  std::optional<Choice> least_;
  std::vector<Choice> found_;
};

}  // namespace

std::vector<Choice> find_remedies(const Planner& planner, const StepSettings& settings,
                                  uint64_t memory_limit) {
  return RemedySearch(planner, settings, memory_limit).run();
}

namespace {

// The least --memory-limit that works for the settings, as it is printed. With little room, blocks
// are laid out in another way, so the memory that they take without a limit may not be enough.
std::string least_limit(const Planner& planner, const StepSettings& settings, uint64_t reserved) {
  for (uint64_t limit = reserved;; limit += limit / 64 + 1) {
    const std::string text = format_bytes(limit);
    try {
      planner.forecast(settings,
                       {.memory = DryMemory::blocks_of_device, .memory_limit = parse_bytes(text)});
      return text;
    } catch (const OutOfMemory&) {
      if (limit > 2 * reserved) return format_bytes(2 * limit);
    }
  }
}

}  // namespace

std::string remedies_text(const Planner& planner, const StepSettings& settings,
                          uint64_t memory_limit) {
  const StepSettings now = unbounded(settings).shortened();
  const Forecast as_it_is = planner.forecast(now, {.memory = DryMemory::unlimited});
  const MemoryReport& needed = as_it_is.memory;
  std::string out =
      fmt::format("The run as it is needs {} ({} in blocks).", format_bytes(needed.peak),
                  least_limit(planner, now, needed.peak_reserved));
  RemedySearch search(planner, settings, memory_limit);
  const std::vector<Choice> remedies = search.run();
  if (const std::optional<Choice>& least = search.least())
    out += fmt::format(" The least that it can do with is {} ({} bytes){}{}.",
                       format_bytes(least->peak()), least->peak(),
                       least->options.empty() ? "" : ": ", least->options);
  if (remedies.empty()) return out + " Nothing that was tried fits.";
  out += " These fit, by dry runs (options to add, peak, blocks, FLOPs per sample):";
  const double plain = as_it_is.flops_per_sample();
  for (const Choice& r : remedies)
    out += fmt::format("\n  {:<44}{:>12}{:>12}{:>+8.1f} %", r.options,
                       format_bytes(r.forecast.memory.peak),
                       format_bytes(r.forecast.memory.peak_reserved),
                       plain > 0 ? 100 * (r.forecast.flops_per_sample() / plain - 1) : 0);
  return out;
}

}  // namespace rw
