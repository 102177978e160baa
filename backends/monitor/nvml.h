// Reports of NVIDIA's management library about its driver's devices, about which Linux itself has
// none. The library is loaded if it is installed; otherwise nothing is reported.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu_processes.h"
#include "gpu_sensors.h"

namespace rw {

// The loaded library, and its queries.
class Nvml {
 public:
  // `library` is for tests.
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");

  // Tells whether the device at this address, like "0000:03:00.0", belongs to NVIDIA's driver.
  bool knows(const std::string& pci_address) const { return device_at(pci_address) != nullptr; }
  // Empty if it does not belong to it.
  GpuSensors sensors(const std::string& pci_address) const;
  // With memory ("vram") and use, but without user and command.
  std::vector<GpuProcess> processes(const std::string& pci_address) const;

 private:
  template <class... Arguments>
  bool call(const char* function, Arguments... arguments) const;
  void* device_at(const std::string& pci_address) const;  // null: not NVIDIA's

  std::shared_ptr<void> library_;  // null: not installed
};

}  // namespace rw
