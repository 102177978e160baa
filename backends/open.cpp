#include "backends/open.h"

#include <cstdlib>

#include "backends/cpu/cpu_backend.h"
#include "backends/vulkan/vulkan_backend.h"
#include "core/error.h"

namespace rw {

namespace {

constexpr std::string_view kVulkan = "vulkan", kVulkanPrefix = "vulkan:";

// What follows "vulkan:", or $REWIND_DEVICE (with or without that prefix), or nothing.
std::string vulkan_choice(std::string device) {
  if (device == kVulkan) {
    const char* wanted = std::getenv("REWIND_DEVICE");
    device = wanted ? wanted : "";
  }
  if (device == kVulkan) return "";
  return device.starts_with(kVulkanPrefix) ? device.substr(kVulkanPrefix.size()) : device;
}

}  // namespace

std::unique_ptr<Backend> open_backend(const std::string& device) {
  if (device == "cpu") return make_cpu_backend();
  check<DeviceError>(device == kVulkan || device.starts_with(kVulkanPrefix), "open_backend",
                     "a device must be 'cpu', 'vulkan' or 'vulkan:...', got '{}'", device);
  return vulkan::make_backend(vulkan_choice(device));
}

std::vector<DeviceListing> list_devices() {
  return vulkan::list_devices();
}

}  // namespace rw
