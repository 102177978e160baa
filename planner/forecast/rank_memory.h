// The memory of ranks that train one model together (StepSettings::ranks), by dry runs of each.
#pragma once

#include <string>
#include <vector>

#include "planner.h"

namespace rw {

// The settings of every rank of settings.ranks, by rank, alike but for the rank.
std::vector<StepSettings> settings_by_rank(const StepSettings& settings);

// What the program needs with each of the settings; `threads` as in FitOptions.
std::vector<MemoryReport> memory_of(const Planner& planner,
                                    const std::vector<StepSettings>& settings,
                                    unsigned threads = 1);
// The first rank that needs most, of what memory_of() gave.
int neediest_rank(const std::vector<MemoryReport>& by_rank);

// The largest settings.batch whose steps fit in `bytes` of device memory on every rank, as
// Planner::largest_batch() for one. settings.rank becomes that of the rank with the least room, of
// which the forecast is.
int64_t largest_batch_of_ranks(const Planner& planner, StepSettings& settings, uint64_t bytes,
                               int64_t guess = 1, Forecast* forecast = nullptr);

// A table for people: peak, blocks, optimizer state and gradients of each rank; of more than 16,
// of those that need most and least.
std::string rank_table(const std::vector<MemoryReport>& by_rank);

}  // namespace rw
