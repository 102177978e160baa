// What to take of what a device reports. Pure functions: tests hold them against the reports of
// real devices (tests/backends/test_device_choices.cpp).
#pragma once

#include <span>
#include <vector>

#include "freeze.h"
#include "vk.h"

namespace rw::vulkan {

enum class MemoryUse {
  device,    // blocks; mapped only where device memory is host memory
  upload,    // written by the host, read by the device
  download,  // written by the device, read by the host
  host,  // blocks of host memory that kernels reach; the device's own only where it has no other
};

inline constexpr VkMemoryPropertyFlags kHostMemory =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

// Types of memory that will do, best first: the next is for when the one before is full. `allowed`:
// a bit for each type; `unified`: the device computes in host memory. Never empty: DeviceError.
std::vector<uint32_t> memory_types(const VkPhysicalDeviceMemoryProperties& memory, uint32_t allowed,
                                   MemoryUse use, bool unified);

// Whether a device of this type computes in host memory.
bool is_unified(VkPhysicalDeviceType type);

// A family of queues that computes; one without graphics where there is one, as desktops share the
// other. DeviceError where there is none.
uint32_t compute_family(std::span<const VkQueueFamilyProperties> families);

// What a device can keep, of both widths that kernels have. Where it cannot have one mode for one
// width only, that mode is left out unless it has it for both; 64 bits are not used. Denormals of
// f32 are left out where they can be: kernels do not promise to keep them (docs/kernels.md), and
// AMD's compiler makes every division longer that has to.
std::vector<FloatMode> float_modes(const VkPhysicalDeviceVulkan12Properties& properties);

}  // namespace rw::vulkan
