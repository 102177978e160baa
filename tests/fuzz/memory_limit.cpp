#include "tests/fuzz/memory_limit.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace {

std::atomic<int64_t> live = 0, most = 0, limit = INT64_MAX;

void* allocate(size_t bytes, size_t alignment) {
  if (bytes > static_cast<size_t>(INT64_MAX) || live + static_cast<int64_t>(bytes) > limit)
    throw std::bad_alloc();
  void* data = alignment > alignof(std::max_align_t)
                   ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                   : std::malloc(bytes ? bytes : 1);
  if (!data) throw std::bad_alloc();
  const int64_t now = live += static_cast<int64_t>(malloc_usable_size(data));
  int64_t before = most;
  while (before < now && !most.compare_exchange_weak(before, now)) {
  }
  return data;
}

void release(void* data) {
  if (!data) return;
  live -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}

}  // namespace

// The array forms of the C++ library call these.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* data, const std::nothrow_t&) noexcept {
  release(data);
}
void* operator new(size_t bytes) {
  return allocate(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept {
  release(data);
}
void operator delete(void* data, size_t) noexcept {
  release(data);
}
void operator delete(void* data, std::align_val_t) noexcept {
  release(data);
}
void operator delete(void* data, size_t, std::align_val_t) noexcept {
  release(data);
}

namespace rw::fuzz {

// Blocks of the device have at least 16 MiB, and lines of text become strings of 32 bytes.
MemoryLimit::MemoryLimit(size_t input_bytes) {
  ::most = live.load();
  limit = live + (int64_t{64} << 20) + 300 * static_cast<int64_t>(input_bytes);
}
MemoryLimit::~MemoryLimit() {
  limit = INT64_MAX;
}
uint64_t MemoryLimit::most() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, ::most));
}

}  // namespace rw::fuzz
