#include "backends/vulkan/device/vk.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rw::vulkan {

std::string result_name(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
      return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
      return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_LAYER_NOT_PRESENT:
      return "VK_ERROR_LAYER_NOT_PRESENT";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
      return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_TOO_MANY_OBJECTS:
      return "VK_ERROR_TOO_MANY_OBJECTS";
    case VK_TIMEOUT:
      return "VK_TIMEOUT";
    default:
      return fmt::format("VkResult {}", static_cast<int>(result));
  }
}

bool has_extension(VkPhysicalDevice device, const char* name) {
  const auto all = list<VkExtensionProperties>([&](uint32_t* count, VkExtensionProperties* data) {
    vkEnumerateDeviceExtensionProperties(device, nullptr, count, data);
  });
  return std::any_of(all.begin(), all.end(),
                     [&](auto& e) { return !std::strcmp(e.extensionName, name); });
}

}  // namespace rw::vulkan
