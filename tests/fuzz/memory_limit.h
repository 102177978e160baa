// A limit on the bytes that a scope may allocate with operator new, on all threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rw::fuzz {

// In its scope, allocations beyond a generous multiple of the input's size throw bad_alloc.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t input_bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  uint64_t most() const;  // the most bytes that were allocated at once since it began
};

}  // namespace rw::fuzz
