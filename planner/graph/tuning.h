// The planner's constants.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rw {

// Found by trying; benchmarks/results/planner-ablation.md has what each is worth. Costs there are
// those of plans at shares of the plain peak, by benchmarks/plan_costs.
struct Tuning {
  // ---- the dynamic programme (planner.cpp, chain.h)
  // Of memory, in one programme: its time grows in proportion.
  static constexpr uint32_t slots = 512;
  // The next programme has this part of the memory: plans for a hundredth of the plain peak need
  // finer slots.
  static constexpr uint32_t finer = 4;
  // Stages of the forward pass: time grows with the third power. Fewer join what should be dropped
  // to what should be kept.
  static constexpr uint32_t stages = 160;
  // The same where the work that is allowed ends before the smallest budgets were planned for.
  static constexpr uint32_t coarse_stages = 64;
  // Stages inside a stage. Without them (0) the smallest budgets have no plan.
  static constexpr uint32_t inner_stages = 16;
  // Slots beyond the least feasible ones that plan_memory tries: slots are rounded, and the least
  // feasible may not be the least peak.
  static constexpr uint32_t memory_tries = 8;

  // ---- what segments keep (planner.cpp, stages.cpp, range.cpp, uses.cpp)
  // The dearest records per byte that make up this share of the cost are heavy.
  static constexpr double heavy_share = 0.9;
  // Sets of heavy values that segments with segments inside may keep.
  static constexpr size_t levels = 4;
  // Stages of such a segment.
  static constexpr uint32_t longest_keeping = 32;
  // The same without segments inside; records, where it has several stages; sets that are tried.
  static constexpr uint32_t longest_options = 16, most_option_records = 512;
  static constexpr size_t most_options = 12;

  // ---- after the programme (polish.cpp)
  // Values that are tried one by one, and records of all plans that are tried.
  static constexpr size_t single_tries = 64, polish_work = 400'000;

  // ---- what is counted as work (work.h), each measured on one core of a 2 GHz Xeon
  static constexpr uint64_t row_work = 64;       // of a row, besides its numbers (chain.cpp)
  static constexpr uint64_t pair_work = 12'000;  // of a programme, by pairs of its stages
  static constexpr uint64_t stage_work = 4'000;  // of a record, by what stages know of it
  static constexpr uint64_t step_work = 170;     // of a record, in one simulated step

  // ---- plan_speed (speed.cpp)
  // First records of a segment of plan_speed that it is tried without: they may cost more than they
  // spare (a residual sum holds both its inputs).
  static constexpr uint32_t most_trimmed = 8;
};

}  // namespace rw
