#include "planner/search/recompute_options.h"

#include <string_view>

#include "core/base/environment.h"
#include "core/memory/memory_report.h"

namespace rw {

AutoRecomputeOptions AutoRecomputeOptions::of_a_run() const {
  check<ValueError>(!keep_8_bits || mode == Mode::budget, "recompute",
                    "values are kept in 8 bits by plans for a budget alone, got another mode");
  AutoRecomputeOptions options = *this;
  if (candidates == 0) options.candidates = 12;
  return options;
}

std::optional<AutoRecomputeOptions> parse_recompute(const std::string& how,
                                                    const std::string& budget) {
  using Mode = AutoRecomputeOptions::Mode;
  constexpr std::string_view collection = "collection:";
  const bool is_for_modules = how == "block" || how == "1" || how == "0";
  AutoRecomputeOptions options{.budget = budget.empty() ? 0 : parse_bytes(budget)};
  if (how == "memory")
    options.mode = Mode::memory;
  else if (how == "speed")
    options.mode = Mode::speed;
  else if (how == "evict")
    options.mode = Mode::evict;
  else if (how.starts_with(collection)) {
    options.mode = Mode::collection;
    options.collection = comma_separated(how.substr(collection.size()));
    check<ValueError>(!options.collection.empty(), "recompute", "'{}' must name something to keep",
                      how);
  } else {
    check<ValueError>(how.empty() || is_for_modules, "recompute",
                      "must be memory, speed, evict, collection:NAME,... or block, got '{}'", how);
  }
  check<ValueError>(
      how != "evict" || options.budget, "recompute",
      "evict needs a budget (REWIND_MEMORY_BUDGET, --memory-budget), as 6GiB, got none");
  const bool is_plain = options.mode == Mode::budget && (!options.budget || is_for_modules);
  return is_plain ? std::nullopt : std::optional(options);
}

}  // namespace rw
