// Choices from what a device reports. Pure functions: tests compare them with the reports of real
// devices (tests/backends/test_device_choices.cpp).
#pragma once

#include <span>
#include <vector>

#include "freeze.h"
#include "vk.h"

namespace rw::vulkan {

enum class MemoryUse {
  device,    // blocks; mapped only if device memory is host memory
  upload,    // written by the host, read by the device
  download,  // written by the device, read by the host
  host,      // blocks of host memory that kernels reach; the device's own only if it has no other
};

inline constexpr VkMemoryPropertyFlags kHostMemory =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

// Returns the types of memory that will do, best first: the next one is for when the previous one
// is full. `allowed` has a bit for each type; `unified` says that the device computes in host
// memory. Never empty: DeviceError.
std::vector<uint32_t> memory_types(const VkPhysicalDeviceMemoryProperties& memory, uint32_t allowed,
                                   MemoryUse use, bool unified);

// Tells whether a device of this type computes in host memory.
bool is_unified(VkPhysicalDeviceType type);

// Returns a family of queues that computes; one without graphics if there is one, since desktops
// share the other. DeviceError if there is none.
uint32_t compute_family(std::span<const VkQueueFamilyProperties> families);

// Returns the float modes that a device can keep, for both widths of kernels. If it cannot have a
// mode for one width only, that mode is left out unless it has it for both; 64 bits are not used.
// Denormals of f32 are left out where possible: kernels do not promise to keep them
// (docs/kernels.md), and AMD's compiler would make every division longer.
std::vector<FloatMode> float_modes(const VkPhysicalDeviceVulkan12Properties& properties);

}  // namespace rw::vulkan
