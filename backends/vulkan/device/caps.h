// The capabilities of a device, asked once when it is opened. Quirks and environment overrides are
// already applied: code looks only here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cooperative.h"
#include "freeze.h"
#include "tuning.h"
#include "vk.h"

namespace rw::vulkan {

// Assumed of a GPU that does not report its number and is not an integrated one.
inline constexpr uint32_t middling_multiprocessors = 32;

struct Caps {
  std::string name, driver, driver_version;
  std::string uuid;         // of the device, hex
  std::string type;         // "discrete GPU", "integrated GPU", "virtual GPU", "CPU", "other"
  std::string pci_address;  // "0000:03:00.0", empty if the driver does not tell
  VkDriverId driver_id = {};
  uint32_t driver_number = 0;   // driverVersion, as the driver encodes it
  bool is_cpu = false;          // software driver
  bool unified_memory = false;  // device memory is host memory

  uint32_t features = 0;  // feature:: bits of shader_table.h
  uint32_t subgroup_size = 1;
  uint32_t workgroup_size = 1;  // of kernels with `local: subgroup`
  // Streaming multiprocessors, compute units or cores, as the driver reports them, else a guess.
  uint32_t multiprocessors = middling_multiprocessors;
  bool subgroup_size_control = false;  // subgroup_size may be required of a pipeline
  bool few_registers = false;          // has_few_registers(): large tiles would spill

  CooperativeMatrices matrices;  // of kernels that need feature::cooperative or cooperative_bf16

  std::vector<FloatMode> float_modes;  // that every kernel declares
  bool packs_halves = true;            // packHalf2x16 rounds and overflows as float16_t does

  uint32_t shared_bytes = 0;  // per workgroup
  uint32_t max_push_bytes = 128;
  uint32_t max_threads = 0;                 // per workgroup
  std::array<uint32_t, 3> max_groups = {};  // per dispatch
  uint64_t max_range = 0;                   // bytes of one storage buffer binding
  uint64_t max_block = 0;                   // bytes of one memory block
  uint64_t heap_bytes = 0;                  // of the heap in which blocks lie
  uint64_t offset_alignment = 16;           // of storage buffer bindings
  // The longest that one dispatch may take; 0: there is no watchdog.
  double dispatch_seconds = 0;

  bool push_descriptors = false;
  bool memory_budget = false;
  bool portability = false;     // the driver is layered over another API
  double timestamp_ns = 0;      // one tick, 0: no timestamps
  uint64_t timestamp_mask = 0;  // bits that count on the opened device's queue

  Tuning tuning;  // of an opened device
};

// The bytes that some kernels need in a workgroup; Vulkan guarantees half.
inline constexpr uint32_t large_shared = 1 << 15;
inline bool has_large_shared(const Caps& caps) {
  return caps.shared_bytes >= large_shared;
}

Caps query_caps(VkInstance instance, VkPhysicalDevice device);

// Returns the features in use that the device could do without, by name, those whose loss costs
// least first.
std::vector<std::string> optional_features(const Caps& caps);
void refuse(Caps& caps, const std::string& feature);  // one of these

}  // namespace rw::vulkan
