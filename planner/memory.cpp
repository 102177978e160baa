#include "planner/memory.h"

#include <string>

#include "core/memory/memory_report.h"
#include "planner/environment.h"

namespace rw {

Memory::Memory(std::string_view bytes) : Memory(parse_bytes(std::string(bytes))) {}

Memory::Memory(uint64_t bytes) : recompute_({.budget = bytes}) {
  set_memory_of_thread(bytes);
}

Memory::~Memory() {
  set_memory_of_thread(0);
}

}  // namespace rw
