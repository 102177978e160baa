// What models do about checkpoint segments by themselves.
#pragma once

#include <cstdlib>
#include <string_view>

namespace rw {

// $REWIND_RECOMPUTE=1: models start with a checkpoint segment per block.
inline bool recompute_requested() {
  const char* value = std::getenv("REWIND_RECOMPUTE");
  return value && std::string_view(value) == "1";
}

}  // namespace rw
