// What a scope may allocate with operator new, on all threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rw::fuzz {

// While it lives, allocations beyond a generous multiple of the input's size are a bad_alloc.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t input_bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  uint64_t most() const;  // bytes that were allocated at once since it began
};

}  // namespace rw::fuzz
