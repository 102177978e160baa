// A Vulkan driver that fails on demand: this program's own functions replace the loader's.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rw::test {

// The faults of the functions; by default there are none.
struct DriverFaults {
  bool maps_nothing = false;  // mapping succeeds but returns no address

  // The device is lost at this call of the function, counted from 0, and at all later calls that
  // can report it.
  std::string lost_in;
  int64_t lost_at = -1;
  int64_t calls = 0;  // of `lost_in`

  bool hangs = false;  // no wait ever sees work complete

  // Memory types that the device shows instead of its own, as property flags and heap; all of them
  // are really the driver's first type. Then the bytes of the heaps; full heaps have no room.
  std::vector<std::pair<uint32_t, uint32_t>> types;
  std::vector<uint64_t> heaps;
  std::vector<bool> full;
  std::vector<uint32_t> allocated = {};  // types, in order

  // Budget and usage of all heaps (VK_EXT_memory_budget, whether the driver has it or not).
  uint64_t budget = 0, usage = 0;

  bool keeps_pipelines = false;  // each takes four bytes of a pipeline cache's data

  int64_t descriptor_pools = 0;  // created and not yet destroyed

  // The number of submits, and of those whose last command is no barrier that makes writes visible
  // to the host.
  uint64_t submits = 0, hidden_submits = 0;
  uint64_t frees = 0;  // calls of vkFreeMemory
};

// Puts the driver in place for a scope; devices are opened in it.
class FaultyDriver {
 public:
  explicit FaultyDriver(DriverFaults faults);
  ~FaultyDriver();
  FaultyDriver(const FaultyDriver&) = delete;
  FaultyDriver& operator=(const FaultyDriver&) = delete;

  static DriverFaults& faults();
};

}  // namespace rw::test
