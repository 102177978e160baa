#include "backends/open.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <span>

#include "backends/cpu/cpu_backend.h"
#include "backends/dry/dry_backend.h"
#include "backends/profiles.h"
#include "backends/reference/reference_backend.h"
#include "backends/self_check.h"
#include "backends/vulkan/device/build_id.h"
#include "backends/vulkan/vulkan_backend.h"
#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/files/json_file.h"

namespace rw {

namespace {

// The seconds that one core needs for one self-check on a CPU driver. Compiling and running it
// takes a tenth of a second to two seconds.
constexpr double kCheckSeconds = 15;
constexpr std::string_view kVulkan = "vulkan", kVulkanPrefix = "vulkan:";
constexpr std::string_view kDry = "dry", kDryPrefix = "dry:";

// Returns the text after "vulkan:", or $REWIND_DEVICE (with or without that prefix), or nothing.
std::string vulkan_choice(std::string device) {
  if (device == kVulkan) device = env_text("REWIND_DEVICE");
  if (device == kVulkan) return "";
  return device.starts_with(kVulkanPrefix) ? device.substr(kVulkanPrefix.size()) : device;
}

// Names the file by everything that a verdict depends on: the device, its driver, the features that
// it offers here, and our shaders.
std::string verdict_file(const DeviceInfo& info) {
  std::string key =
      fmt::format("{} {} {} {}", info.uuid, info.name, info.driver, info.subgroup_size);
  for (const std::string& feature : info.features) key += " " + feature;
  const uint64_t hash = fnv1a(std::as_bytes(std::span(key)));
  return fmt::format("self-check-{:016x}", fnv1a(hash, vulkan::build_id()));
}

// Opens the device without the features with which it fails its self-check. The check runs when a
// device, a driver or a build is new; REWIND_WITHOUT=self-check trusts the driver.
std::unique_ptr<Backend> open_proved(const std::string& choice) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<RefusedFeature>> verdicts;
  const auto open_for_checks = [&](const std::vector<RefusedFeature>& without) {
    return vulkan::make_backend(choice, without, true);
  };
  std::unique_ptr<Backend> device = vulkan::make_backend(choice);
  if (is_without("self-check")) return device;
  const DeviceInfo info = device->info();
  const std::string file = verdict_file(info);
  const std::lock_guard lock(mutex);
  auto known = verdicts.find(file);
  if (known == verdicts.end()) {
    device.reset();  // a child process must find no driver that has threads here
    const double child_seconds = info.is_cpu ? kCheckSeconds : 0;
    known =
        verdicts.emplace(file, refused_features(file, open_for_checks, info, child_seconds)).first;
  }
  if (device && known->second.empty()) return device;
  return vulkan::make_backend(choice, known->second);
}

// Its threads start with its first kernel, and so after the check, which may fork.
std::unique_ptr<Backend> open_vulkan(const std::string& choice) {
  std::unique_ptr<Backend> device = open_proved(choice);
  vulkan::work_ahead(*device);
  return device;
}

// Opens the text after "dry:": a device, or the file or the name of a device's profile.
std::unique_ptr<Backend> open_dry(const std::string& what) {
  if (!what.ends_with(".json")) return open_backend(what)->dry();
  return vulkan::make_dry_backend(read_config_text(find_profile(what)), what);
}

}  // namespace

std::unique_ptr<Backend> open_backend(const std::string& device) {
  if (device == "auto") return open_backend(best_device());
  if (device == "cpu") return make_cpu_backend();
  if (device == "reference") return make_reference_backend();
  if (device == kDry) return open_backend("auto")->dry();
  if (device.starts_with(kDryPrefix)) return open_dry(device.substr(kDryPrefix.size()));
  check<DeviceError>(
      device == kVulkan || device.starts_with(kVulkanPrefix), "open_backend",
      "a device must be 'auto', 'cpu', 'reference', 'vulkan', 'vulkan:...' or 'dry:...', got '{}'",
      device);
  return open_vulkan(vulkan_choice(device));
}

std::string best_device() {
  if (!env_text("REWIND_DEVICE").empty()) return "vulkan";
  try {
    const auto is_gpu = [](const DeviceListing& listing) { return !listing.info.is_cpu; };
    return std::ranges::any_of(list_devices(), is_gpu) ? "vulkan" : "cpu";
  } catch (const DeviceError&) {  // no driver at all
    return "cpu";
  }
}

std::string device_profile(const std::string& device) {
  const std::string choice = vulkan_choice(device);
  return vulkan::profile(choice, open_proved(choice)->info().refused);
}

std::vector<DeviceListing> list_devices() {
  return vulkan::list_devices();
}

}  // namespace rw
