// The planner's constants.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rw::tuning {

// These were found by experiment; benchmarks/results/planner-ablation.md shows what each is worth.
// Costs there are those of plans at shares of the plain peak, by benchmarks/plan_costs.

// ---- the dynamic programme (planner.cpp, chain.h)
// The slots of memory in one programme, whose time grows in proportion.
inline constexpr uint32_t slots = 512;
// Values of less than this fraction of a slot are not offloaded: a copy takes time to begin.
inline constexpr uint32_t slot_to_offload = 4;
// The next programme has this fraction of the memory: plans for a hundredth of the plain peak
// need finer slots.
inline constexpr uint32_t finer = 4;
// The stages of the forward pass: time grows with the third power. With fewer, values to drop and
// values to keep share a stage.
inline constexpr uint32_t stages = 160;
// The same if the allowed work ends before the smallest budgets are planned for.
inline constexpr uint32_t coarse_stages = 64;
// Stages inside a stage. Without them (0) the smallest budgets have no plan.
inline constexpr uint32_t inner_stages = 16;
// The slots beyond the least feasible ones that plan_memory tries: slots are rounded, and the
// least feasible number may not give the least peak.
inline constexpr uint32_t memory_tries = 8;

// ---- what segments keep (planner.cpp, stages.cpp, range.cpp, uses.cpp)
// The most expensive records per byte that make up this share of the cost are heavy.
inline constexpr double heavy_share = 0.9;
// The sets of heavy values that segments with inner segments may keep.
inline constexpr size_t levels = 4;
// The stages of such a segment.
inline constexpr uint32_t longest_keeping = 32;
// The same without inner segments; the records, if it has several stages; the sets that are
// tried.
inline constexpr uint32_t longest_options = 16, most_option_records = 512;
inline constexpr size_t most_options = 12;

// ---- after the programme (polish.cpp)
// The values that are tried one by one, and the records of all plans that are tried.
inline constexpr size_t single_tries = 64, polish_work = 400'000;

// ---- what is counted as work (work.h), each measured on one core of a 2 GHz Xeon
inline constexpr uint64_t row_work = 64;       // of a row, besides its numbers (chain.cpp)
inline constexpr uint64_t pair_work = 12'000;  // of a programme, by pairs of its stages
inline constexpr uint64_t stage_work = 4'000;  // of a record, by what stages know of it
inline constexpr uint64_t step_work = 170;     // of a record, in one simulated step

// ---- plan_speed (speed.cpp)
// A segment of plan_speed is tried without so many of its first records: they may cost more than
// they save (a residual sum holds both its inputs).
inline constexpr uint32_t most_trimmed = 8;

}  // namespace rw::tuning
