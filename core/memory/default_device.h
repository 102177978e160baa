// The device on which new tensors are made.
#pragma once

#include <memory>
#include <optional>

#include "device.h"

namespace rw {

// The device on which new tensors are made, in all threads except those in a DeviceScope.
// default_device throws DeviceError before the first set.
std::shared_ptr<Device> set_default_device(std::unique_ptr<Backend> backend,
                                           uint64_t memory_limit = 0);
void set_default_device(std::shared_ptr<Device> device);
std::shared_ptr<Device> default_device();
// Makes `device` (or none) the default and returns the previous one.
std::shared_ptr<Device> exchange_default_device(std::shared_ptr<Device> device);

// While it lives, this thread has a default device of its own; setting the default sets that one.
class DeviceScope {
 public:
  explicit DeviceScope(std::shared_ptr<Device> device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  std::optional<std::shared_ptr<Device>> previous_;
};

}  // namespace rw
