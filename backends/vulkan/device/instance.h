// The Vulkan instance: loader, validation, the list of usable devices.
#pragma once

#include <vector>

#include "vk.h"

namespace rw::vulkan {

// With REWIND_VALIDATE=1 the validation layer runs with synchronization checks; its warnings and
// errors go to stderr and are counted.
class Instance {
 public:
  Instance();  // throws DeviceError naming what to install
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  VkInstance handle() const { return handle_; }
  bool debug_names() const { return debug_utils_; }

  // The devices with Vulkan 1.2, timeline semaphores and a compute queue, best first.
  std::vector<VkPhysicalDevice> devices() const;

 private:
  VkInstance handle_ = nullptr;
  VkDebugUtilsMessengerEXT messenger_ = nullptr;
  bool debug_utils_ = false;
};

// Validation messages of this process so far.
uint64_t validation_messages();

}  // namespace rw::vulkan
