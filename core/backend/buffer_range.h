// A range of a device's memory.
#pragma once

#include <cstdint>

namespace rw {

// Bytes [offset, offset + size) of a memory block owned by the backend.
struct BufferRange {
  uint32_t block = 0;                             // its number
  uint64_t offset = 0;                            // in the block
  uint64_t size = 0;                              // bytes
  uint64_t end() const { return offset + size; }  // in the block
  bool operator==(const BufferRange&) const = default;
};

}  // namespace rw
