// Opens a backend by name, and lists devices. This is the header of backends/ that programs need.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../core/backend/backend.h"
#include "listing.h"

namespace rw {

// "auto", "cpu", "reference" (plain loops in double, the oracle of the others), "vulkan",
// "vulkan:1" (index), "vulkan:NVIDIA" (part of the name, any case), "vulkan:uuid=0123...". "auto"
// is best_device(). "vulkan" alone takes $REWIND_DEVICE or else the best device: discrete GPU,
// integrated GPU, virtual GPU, CPU driver. Throws DeviceError, which says what to install if there
// is no driver, and lists the devices if none matches. "dry" ("dry:auto") or "dry:DEVICE" predicts
// that device without using it; "dry:FILE.json" one whose profile was saved, on this machine or
// another. FILE.json alone, if there is no such file, is one of those that come with Rewind:
// "dry:rx7900xtx.json".
std::unique_ptr<Backend> open_backend(const std::string& device);

// Returns "vulkan" if it would take a GPU, or if $REWIND_DEVICE names one of its devices; else
// "cpu". Vulkan's drivers for CPUs are slower, and are used only by name.
std::string best_device();

// Returns the limits of a Vulkan device, to be saved and used with "dry:FILE.json".
std::string device_profile(const std::string& device);

// Returns the Vulkan devices in the order of their indices, without opening them. Throws
// DeviceError, which says what to install, if there is none.
std::vector<DeviceListing> list_devices();

}  // namespace rw
