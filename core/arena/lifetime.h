// The lifetime of an allocation.
#pragma once

#include <cstdint>

namespace rw {

// One allocation, alive at times [begin, end).
struct Lifetime {
  uint64_t size = 0;  // bytes, already rounded up to the arena's unit
  uint32_t begin = 0, end = 0;
};

}  // namespace rw
