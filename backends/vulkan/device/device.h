// One opened device: the logical device, its queue and its capabilities.
#pragma once

#include <memory>
#include <string>

#include "../../../core/backend/backend.h"
#include "caps.h"
#include "instance.h"

namespace rw::vulkan {

class Device {
 public:
  // `choice` is "" (best), an index, "uuid=...", or a part of the name. `without` has the
  // optional_features() that are not used. `use` is the purpose: with `statistics`, the compiler
  // reports about pipelines (pipeline_statistics).
  enum class Use { programs, checks, statistics };
  explicit Device(const std::string& choice, const std::vector<RefusedFeature>& without = {},
                  Use use = Use::programs);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  VkDevice handle() const { return handle_; }
  VkPhysicalDevice physical() const { return physical_; }
  VkQueue queue() const { return queue_; }
  uint32_t queue_family() const { return queue_family_; }
  const Caps& caps() const { return caps_; }
  const VkPhysicalDeviceMemoryProperties& memory() const { return memory_; }

  // Sets the name that validation messages and debuggers show.
  void set_name(VkObjectType type, uint64_t object, const std::string& name) const;

  PFN_vkCmdPushDescriptorSetKHR push_descriptor_set = nullptr;  // null: not supported

 private:
  void create(Use use);

  Instance instance_;
  VkPhysicalDevice physical_ = nullptr;
  VkDevice handle_ = nullptr;
  VkQueue queue_ = nullptr;
  uint32_t queue_family_ = 0;
  Caps caps_;
  VkPhysicalDeviceMemoryProperties memory_ = {};
  PFN_vkSetDebugUtilsObjectNameEXT set_object_name_ = nullptr;
};

}  // namespace rw::vulkan
