// Memory of this process that the arena does not account for: the host's, and the driver's own.
#pragma once

#include <cstdint>
#include <optional>

#include "../backend/backend.h"

namespace rw {

// Bytes of host memory that this process holds in RAM: `current`, and `peak`, the most so far. On a
// CPU device the device's blocks are among them.
struct HostMemory {
  uint64_t current = 0, peak = 0;
};

// As it is now.
HostMemory host_memory();

// The peak counts from now on. False where the system does not offer that (Linux does).
bool reset_host_peak();

// Bytes that the driver holds in the heap of the blocks besides the `block_bytes` which this
// process allocated there: compiled kernels, command buffers, transfer memory. Nothing where the
// driver does not tell; CPU drivers tell what the whole machine uses, so for them there is nothing
// either.
std::optional<uint64_t> driver_overhead(const Backend& backend, uint64_t block_bytes);

}  // namespace rw
