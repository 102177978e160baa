// The memory of ranks that train one model together (StepSettings::ranks), by a dry run of each.
#pragma once

#include <string>
#include <vector>

#include "planner.h"

namespace rw {

// The settings of all settings.ranks ranks, by rank, which differ only in the rank.
std::vector<StepSettings> settings_by_rank(const StepSettings& settings);

// Those of ranks that may need other memory than the ones before: unless ranks keep parts, all are
// alike except for the first, which saves.
std::vector<StepSettings> kinds_of_ranks(const StepSettings& settings);

// The memory that the program needs with each of the settings; `threads` as in FitOptions.
std::vector<MemoryReport> memory_of(const Planner& planner,
                                    const std::vector<StepSettings>& settings,
                                    unsigned threads = 1);
// The first rank that needs the most memory, from the result of memory_of().
int neediest_rank(const std::vector<MemoryReport>& by_rank);

// The largest settings.batch whose steps fit in `bytes` of device memory on every rank, as
// Planner::largest_batch() for one. settings.rank becomes that of the rank with the least room,
// which the forecast is for.
int64_t largest_batch_of_ranks(const Planner& planner, StepSettings& settings, uint64_t bytes,
                               int64_t guess = 1, Forecast* forecast = nullptr);

// A table for people: peak, blocks, optimizer state and gradients of each rank; if there are more
// than 16, of those that need most and least.
std::string rank_table(const std::vector<MemoryReport>& by_rank);

}  // namespace rw
