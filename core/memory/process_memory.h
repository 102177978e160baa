// Memory of this process that the arena does not account for: the host's, and the driver's own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "../backend/backend.h"

namespace rw {

// Bytes of host memory that this process holds in RAM: `current`, and `peak`, the most so far. On a
// CPU device, the device's blocks are among them.
struct HostMemory {
  uint64_t current = 0, peak = 0;
};

// Returns the current values.
HostMemory host_memory();

// The bytes of RAM that this machine has.
uint64_t host_memory_bytes();

// The bytes of host memory that this process may still take: what the machine has free, or less
// where its control groups (of version 1 or 2, and those around them) or `ulimit -v` say so,
// without an eighth of it. `root` is where the system's folders proc and sys are.
uint64_t spare_host_bytes(const std::filesystem::path& root = "/");

// Restarts the peak from now on. False if the system does not offer that (Linux does).
bool reset_host_peak();

// Returns the bytes that the driver holds in the heap of the blocks besides the `block_bytes` that
// this process allocated there: compiled kernels, command buffers, transfer memory. Nothing if the
// driver does not say; CPU drivers report the use of the whole machine, so there is nothing for
// them either.
std::optional<uint64_t> driver_overhead(const Backend& backend, uint64_t block_bytes);

}  // namespace rw
