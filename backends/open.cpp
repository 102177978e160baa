#include "rewind/backends/open.h"

#include <cstdlib>

#include "rewind/backends/cpu/cpu_backend.h"
#include "rewind/backends/dry/dry_backend.h"
#include "rewind/backends/vulkan/vulkan_backend.h"
#include "rewind/core/base/error.h"
#include "rewind/core/base/json_file.h"

namespace rw {

namespace {

constexpr std::string_view kVulkan = "vulkan", kVulkanPrefix = "vulkan:";
constexpr std::string_view kDry = "dry", kDryPrefix = "dry:";

// What follows "vulkan:", or $REWIND_DEVICE (with or without that prefix), or nothing.
std::string vulkan_choice(std::string device) {
  if (device == kVulkan) {
    const char* wanted = std::getenv("REWIND_DEVICE");
    device = wanted ? wanted : "";
  }
  if (device == kVulkan) return "";
  return device.starts_with(kVulkanPrefix) ? device.substr(kVulkanPrefix.size()) : device;
}

// What follows "dry:": a device, or the file of a device's profile.
std::unique_ptr<Backend> open_dry(const std::string& what) {
  if (!what.ends_with(".json")) return open_backend(what)->dry();
  return vulkan::make_dry_backend(read_config_text(what), what);
}

}  // namespace

std::unique_ptr<Backend> open_backend(const std::string& device) {
  if (device == "cpu") return make_cpu_backend();
  if (device == kDry) return open_backend("vulkan")->dry();
  if (device.starts_with(kDryPrefix)) return open_dry(device.substr(kDryPrefix.size()));
  check<DeviceError>(device == kVulkan || device.starts_with(kVulkanPrefix), "open_backend",
                     "a device must be 'cpu', 'vulkan', 'vulkan:...' or 'dry:...', got '{}'",
                     device);
  return vulkan::make_backend(vulkan_choice(device));
}

std::unique_ptr<Backend> dry_backend(const Backend& device, const DeviceInfo& info) {
  const std::shared_ptr<const Backend> dry = device.dry();
  check(dry != nullptr, "dry_backend", "'{}' cannot be predicted", device.info().name);
  return make_dry_backend(info, [dry](const KernelCall& call) { return dry->prepare(call); });
}

std::string device_profile(const std::string& device) {
  return vulkan::profile(vulkan_choice(device));
}

std::vector<DeviceListing> list_devices() {
  return vulkan::list_devices();
}

}  // namespace rw
