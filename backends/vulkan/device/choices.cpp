#include "backends/vulkan/device/choices.h"

#include <algorithm>

namespace rw::vulkan {

namespace {

constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
// Whether the type needs features that nobody asked for, or is no memory that keeps data.
constexpr VkMemoryPropertyFlags kUnusable =
    VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
    VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD |
    VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV;

// Wanted property flags, best first.
std::vector<VkMemoryPropertyFlags> preferences(MemoryUse use, bool unified) {
  switch (use) {
    case MemoryUse::upload:
      return {kHostMemory | kLocal, kHostMemory};
    case MemoryUse::download:
    case MemoryUse::host:
      return {kHostMemory | kCached, kHostMemory};
    default:
      break;
  }
  if (unified)
    return {kLocal | kHostMemory | kCached, kLocal | kHostMemory, kLocal, kHostMemory | kCached,
            kHostMemory};
  return {kLocal};  // never host memory: training over the bus would only look like training
}

// Whether the device has memory of these types on the host, beside its own.
bool has_host_memory(const VkPhysicalDeviceMemoryProperties& memory, uint32_t allowed) {
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
    if ((allowed >> i & 1) && (flags & kHostMemory) == kHostMemory &&
        !(flags & (kLocal | kUnusable)))
      return true;
  }
  return false;
}

}  // namespace

// Drivers list types with fewer flags first, so in a GPU's own memory the part that the host cannot
// map comes before the window that it can map.
std::vector<uint32_t> memory_types(const VkPhysicalDeviceMemoryProperties& memory, uint32_t allowed,
                                   MemoryUse use, bool unified) {
  std::vector<uint32_t> all;
  VkMemoryPropertyFlags unwanted = kUnusable;
  if (use == MemoryUse::host && has_host_memory(memory, allowed)) unwanted |= kLocal;
  for (const VkMemoryPropertyFlags wanted : preferences(use, unified)) {
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
      if ((allowed >> i & 1) && (flags & wanted) == wanted && !(flags & unwanted) &&
          std::find(all.begin(), all.end(), i) == all.end())
        all.push_back(i);
    }
    std::stable_sort(all.begin() + first, all.end(), [&](uint32_t a, uint32_t b) {
      const auto size = [&](uint32_t type) {
        return memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size;
      };
      return size(a) > size(b);
    });
  }
  check<DeviceError>(!all.empty(), "vulkan", "the device must have a suitable type of memory");
  return all;
}

bool is_unified(VkPhysicalDeviceType type) {
  return type == VK_PHYSICAL_DEVICE_TYPE_CPU || type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
}

uint32_t compute_family(std::span<const VkQueueFamilyProperties> families) {
  const auto count = static_cast<uint32_t>(families.size());
  uint32_t best = count;
  for (uint32_t i = count; i-- > 0;) {
    const auto has = [&](uint32_t family, VkQueueFlags flag) {
      return (families[family].queueFlags & flag) != 0;
    };
    if (!has(i, VK_QUEUE_COMPUTE_BIT) || families[i].queueCount == 0) continue;
    if (best == count || !has(i, VK_QUEUE_GRAPHICS_BIT) || has(best, VK_QUEUE_GRAPHICS_BIT))
      best = i;
  }
  check<DeviceError>(best < count, "vulkan", "the device must have a queue that computes");
  return best;
}

std::vector<FloatMode> float_modes(const VkPhysicalDeviceVulkan12Properties& p) {
  constexpr auto none = VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
  const bool of_16_alone = p.denormBehaviorIndependence != none;
  const bool of_both = p.shaderDenormPreserveFloat16 && p.shaderDenormPreserveFloat32;
  const bool rounding = p.roundingModeIndependence != none ||
                        p.shaderRoundingModeRTEFloat16 == p.shaderRoundingModeRTEFloat32;
  constexpr uint32_t preserve[] = {4464, 4459}, special[] = {4466, 4461}, to_even[] = {4467, 4462};
  std::vector<FloatMode> modes;
  const auto add = [&](bool has, const uint32_t(&mode)[2], uint32_t width) {
    if (has) modes.push_back({mode[0], mode[1], width});
  };
  add(of_16_alone ? p.shaderDenormPreserveFloat16 : of_both, preserve, 16);
  add(!of_16_alone && of_both, preserve, 32);
  add(p.shaderSignedZeroInfNanPreserveFloat16, special, 16);
  add(p.shaderSignedZeroInfNanPreserveFloat32, special, 32);
  add(rounding && p.shaderRoundingModeRTEFloat16, to_even, 16);
  add(rounding && p.shaderRoundingModeRTEFloat32, to_even, 32);
  return modes;
}

}  // namespace rw::vulkan
