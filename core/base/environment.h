// Environment switches: REWIND_X=1, REWIND_X=text.
#pragma once

#include <cstdlib>
#include <string>

namespace rw {

// Empty where it is not set.
inline std::string env_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Set, and not to 0.
inline bool env_flag(const char* name) {
  const std::string value = env_text(name);
  return !value.empty() && value != "0";
}

// Whether variables that are about training (REWIND_MEMORY_BUDGET, REWIND_RECOMPUTE) are obeyed:
// not in programs that read them themselves.
inline bool obeys_environment = true;

}  // namespace rw
