#include "planner/forecast.h"

#include <fmt/format.h>

#include "core/memory/memory_report.h"

namespace rw {

std::string Forecast::str() const {
  std::string text = memory.str() + "\nWork of an update:\n";
  uint64_t calls = 0;
  for (int i = 0; i < phase_count; ++i) {
    const Work& in_phase = work[static_cast<size_t>(i)];
    calls += in_phase.calls;
    text += fmt::format("  {:<10}{:>12.3f} GFLOP{:>14} read and written{:>8} kernels\n",
                        name(static_cast<Phase>(i)), in_phase.flops / 1e9,
                        format_bytes(in_phase.bytes), in_phase.calls);
  }
  text += fmt::format("  together  {:>12.3f} GFLOP, recomputation {:.1f} % of the rest; {} kernels",
                      flops() / 1e9, 100 * recompute_share(), calls);
  return text + (allocations ? fmt::format(", {} allocations\n", allocations) : "\n");
}

}  // namespace rw
