// What NVIDIA's management library tells of its driver's devices: Linux itself knows nothing of
// them. It is loaded where it is installed; where it is not, nothing is told.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu_processes.h"
#include "gpu_sensors.h"

namespace rw {

// The loaded library, and what it is asked.
class Nvml {
 public:
  // `library`: for tests.
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");

  // Whether the device at this address, as "0000:03:00.0", is of NVIDIA's driver.
  bool knows(const std::string& pci_address) const { return device_at(pci_address) != nullptr; }
  // Empty where it is not.
  GpuSensors sensors(const std::string& pci_address) const;
  // With memory ("vram") and use, without user and command.
  std::vector<GpuProcess> processes(const std::string& pci_address) const;

 private:
  template <class... Arguments>
  bool call(const char* function, Arguments... arguments) const;
  void* device_at(const std::string& pci_address) const;  // null: not NVIDIA's

  std::shared_ptr<void> library_;  // null: not installed
};

}  // namespace rw
