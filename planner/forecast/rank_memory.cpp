#include "planner/forecast/rank_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/parallel.h"

namespace rw {

namespace {

bool needs_less(const MemoryReport& a, const MemoryReport& b) {
  return a.peak < b.peak;
}

std::string row(size_t rank, const MemoryReport& memory, const char* remark) {
  const auto of = [&](Purpose purpose) {
    return format_bytes(memory.peak_by_purpose[static_cast<size_t>(purpose)]);
  };
  return fmt::format("  {:<6}{:>12}{:>12}{:>17}{:>12}{}\n", rank, format_bytes(memory.peak),
                     format_bytes(memory.peak_reserved), of(Purpose::optimizer),
                     of(Purpose::gradient), remark);
}

}  // namespace

std::vector<StepSettings> settings_by_rank(const StepSettings& settings) {
  std::vector<StepSettings> all(static_cast<size_t>(settings.ranks), settings);
  for (size_t rank = 0; rank < all.size(); ++rank) all[rank].rank = static_cast<int>(rank);
  return all;
}

std::vector<StepSettings> kinds_of_ranks(const StepSettings& settings) {
  std::vector<StepSettings> kinds = settings_by_rank(settings);
  if (settings.shard == "none") kinds.resize(std::min<size_t>(kinds.size(), 2));
  return kinds;
}

std::vector<MemoryReport> memory_of(const Planner& planner,
                                    const std::vector<StepSettings>& settings, unsigned threads) {
  std::vector<MemoryReport> found(settings.size());
  parallel_for(settings.size(), threads, [&](size_t i) {
    found[i] = planner.forecast(settings[i].shortened(), {.memory = DryMemory::unlimited}).memory;
  });
  return found;
}

int neediest_rank(const std::vector<MemoryReport>& by_rank) {
  return static_cast<int>(std::ranges::max_element(by_rank, needs_less) - by_rank.begin());
}

int64_t largest_batch_of_ranks(const Planner& planner, StepSettings& settings, uint64_t bytes,
                               int64_t guess, Forecast* forecast) {
  std::vector<StepSettings> others = kinds_of_ranks(settings);
  uint64_t most = 0;
  for (StepSettings& one : others) {
    one.batch = 1;
    const uint64_t peak = others.size() > 1 ? planner.peak(one) : 0;
    if (peak > most) settings.rank = one.rank;
    most = std::max(most, peak);
  }
  int64_t batch = planner.largest_batch(settings, bytes, guess, forecast);
  // Blocks are less regular than live values, so another rank may have less room.
  for (size_t i = 0; batch > 0 && i < others.size(); ++i) {
    StepSettings one = others[i].shortened();
    if (one.rank == settings.rank) continue;
    one.batch = batch;
    try {
      planner.forecast(one, {.memory = DryMemory::blocks_of_device, .memory_limit = bytes});
    } catch (const OutOfMemory&) {
      settings.rank = one.rank;
      batch = planner.largest_batch(settings, bytes, batch, forecast);
    }
  }
  return batch;
}

std::string rank_table(const std::vector<MemoryReport>& by_rank) {
  constexpr size_t most_shown = 16;
  const auto [least, most] = std::ranges::minmax_element(by_rank, needs_less);
  const bool differ = least->peak < most->peak;
  std::string out =
      fmt::format("Memory of the {} ranks:\n  {:<6}{:>12}{:>12}{:>17}{:>12}\n", by_rank.size(),
                  "rank", "peak", "reserved", "optimizer state", "gradients");
  for (auto at = by_rank.begin(); at != by_rank.end(); ++at) {
    if (by_rank.size() > most_shown && at != least && at != most) continue;
    const char* remark = !differ ? "" : at == most ? "  most" : at == least ? "  least" : "";
    out += row(static_cast<size_t>(at - by_rank.begin()), *at, remark);
  }
  return out;
}

}  // namespace rw
