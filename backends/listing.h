// What is known about a device without opening it.
#pragma once

#include <string>
#include <vector>

#include "core/backend.h"

namespace rw {

struct DeviceListing {
  DeviceInfo info;
  std::string type;         // "discrete GPU", "integrated GPU", "virtual GPU", "CPU" or "other"
  std::string pci_address;  // "0000:03:00.0", empty where the driver does not tell
  std::vector<HeapUsage> heaps;
};

}  // namespace rw
