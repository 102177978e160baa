// Lists devices without opening them.
#pragma once

#include <string>
#include <vector>

#include "../core/backend/backend.h"

namespace rw {

// A device as list_devices() finds it.
struct DeviceListing {
  DeviceInfo info;          // as the driver describes it; nothing is refused yet
  std::string type;         // "discrete GPU", "integrated GPU", "virtual GPU", "CPU" or "other"
  std::string pci_address;  // "0000:03:00.0", empty if the driver does not tell
  std::vector<HeapUsage> heaps;  // of its memory
};

// Tells whether `choice` means this device: by its index, by "uuid=...", or by a part of its name
// in any case, with or without "vulkan:" before it.
bool device_matches(const std::string& name, const std::string& uuid, size_t index,
                    const std::string& choice);

// Says what is wrong, and what to do, if a GPU has files in `dev` and no Vulkan driver offers it;
// empty if there is no such GPU.
std::string unoffered_gpu(const std::string& dev = "/dev");

}  // namespace rw
