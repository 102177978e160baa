// Environment switches: REWIND_X=1, REWIND_X=text, REWIND_WITHOUT=WORD,...,
// REWIND_LIMITS=NAME:NUMBER,...
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// Returns the variable's text, empty if it is not set.
inline std::string env_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Tells whether it is set to something other than 0.
inline bool env_flag(const char* name) {
  const std::string value = env_text(name);
  return !value.empty() && value != "0";
}

// Returns the budget that REWIND_MEMORY_BUDGET sets for the memory of the device, as 6GiB; empty:
// none. A device takes it as its limit, plans of recomputation stay within it, and training
// programs have it as the default of --memory-budget.
inline std::string env_memory_budget() {
  const std::string budget = env_text("REWIND_MEMORY_BUDGET");
  return budget.empty() ? env_text("REWIND_MEMORY") : budget;
}

// Returns the parts of "a,b,c" that are not empty.
std::vector<std::string> comma_separated(const std::string& text);

// Tells whether REWIND_WITHOUT names it: the features that devices and the library do without,
// mostly for tests (docs/vulkan.md lists the words). ValueError for an unknown word.
bool is_without(std::string_view what);
// Returns the number that REWIND_LIMITS=range:65536,... gives for it: range, block and shared in
// bytes, dispatch-us in microseconds. ValueError for a malformed list.
std::optional<uint64_t> env_limit(std::string_view what);

// Tells whether variables about training (REWIND_MEMORY_BUDGET, REWIND_RECOMPUTE) are obeyed.
// Programs that read them themselves switch this off.
inline bool reads_environment = true;

}  // namespace rw
