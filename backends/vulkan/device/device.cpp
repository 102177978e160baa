#include "backends/vulkan/device/device.h"

#include "backends/listing.h"
#include "backends/vulkan/device/choices.h"
#include "backends/vulkan/device/shader_table.h"
#include "backends/vulkan/device/tuning_file.h"
#include "core/backend/unsupported.h"

namespace rw::vulkan {

namespace {

VkPhysicalDevice choose(const Instance& instance, const std::string& choice, Caps& caps) {
  std::string seen;
  std::vector<VkPhysicalDevice> all = instance.devices();
  for (size_t i = 0; i < all.size(); ++i) {
    caps = query_caps(instance.handle(), all[i]);
    if (device_matches(caps.name, caps.uuid, i, choice)) return all[i];
    seen += fmt::format("\n  vulkan:{} {} (uuid={})", i, caps.name, caps.uuid);
  }
  fail<DeviceError>("vulkan", "no device matches '{}'; there are:{}", choice, seen);
}

std::vector<VkQueueFamilyProperties> queue_families(VkPhysicalDevice device) {
  return list<VkQueueFamilyProperties>([&](uint32_t* count, VkQueueFamilyProperties* all) {
    vkGetPhysicalDeviceQueueFamilyProperties(device, count, all);
  });
}

}  // namespace

Device::Device(const std::string& choice, const std::vector<RefusedFeature>& without, Use use) {
  physical_ = choose(instance_, choice, caps_);
  for (const RefusedFeature& feature : without) refuse(caps_, feature.name);
  if (use == Use::checks) caps_.multiprocessors = 1;  // small products fill it with large tiles
  caps_.tuning = load_tuning(caps_);
  vkGetPhysicalDeviceMemoryProperties(physical_, &memory_);
  const std::vector<VkQueueFamilyProperties> families = queue_families(physical_);
  queue_family_ = compute_family(families);
  const uint32_t bits = families[queue_family_].timestampValidBits;
  if (bits == 0) caps_.timestamp_ns = 0;
  caps_.timestamp_mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  create(use);
  vkGetDeviceQueue(handle_, queue_family_, 0, &queue_);
  if (instance_.debug_names())
    set_object_name_ = reinterpret_cast<PFN_vkSetDebugUtilsObjectNameEXT>(
        vkGetDeviceProcAddr(handle_, "vkSetDebugUtilsObjectNameEXT"));
  if (caps_.push_descriptors)
    push_descriptor_set = reinterpret_cast<PFN_vkCmdPushDescriptorSetKHR>(
        vkGetDeviceProcAddr(handle_, "vkCmdPushDescriptorSetKHR"));
}

Device::~Device() {
  vkDestroyDevice(handle_, nullptr);
}

void Device::create(Use use) {
  const auto has = [&](uint32_t bit) { return (caps_.features & bit) ? VK_TRUE : VK_FALSE; };
  VkPhysicalDeviceSubgroupSizeControlFeatures control{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  control.subgroupSizeControl = VK_TRUE;
  VkPhysicalDeviceVulkan12Features f12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  f12.timelineSemaphore = VK_TRUE;
  f12.bufferDeviceAddress = has(feature::address);
  f12.shaderFloat16 = has(feature::float16);
  VkPhysicalDeviceVulkan11Features f11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &f12};
  f11.storageBuffer16BitAccess = has(feature::storage16);
  VkPhysicalDeviceFeatures2 f{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &f11};

  std::vector<const char*> extensions;
  if (caps_.push_descriptors) extensions.push_back(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  if (caps_.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (caps_.portability) extensions.push_back("VK_KHR_portability_subset");
  if (caps_.subgroup_size_control || has(feature::cooperative)) {
    extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    f12.pNext = &control;
  }
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  if (has(feature::cooperative)) {
    extensions.push_back(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
    control.computeFullSubgroups = VK_TRUE;
    f12.vulkanMemoryModel = VK_TRUE;
    f12.vulkanMemoryModelDeviceScope = VK_TRUE;  // of atomics in other kernels, under that model
    matrices.cooperativeMatrix = VK_TRUE;
    control.pNext = &matrices;
  }
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR};
  if (has(feature::cooperative_bf16)) {
    extensions.push_back(VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
    bf16.shaderBFloat16Type = VK_TRUE;
    bf16.shaderBFloat16CooperativeMatrix = VK_TRUE;
    matrices.pNext = &bf16;
  }
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, f.pNext};
  executables.pipelineExecutableInfo = VK_TRUE;
  if (use == Use::statistics) {
    check<Unsupported>(
        has_extension(physical_, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME), "vulkan",
        "the driver must describe pipelines, '{}' has no {}", caps_.driver,
        VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    f.pNext = &executables;
  }

  const float priority = 1;
  VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = queue_family_;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &f};
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  vk_check(vkCreateDevice(physical_, &info, nullptr, &handle_), "vkCreateDevice");
}

void Device::set_name(VkObjectType type, uint64_t object, const std::string& name) const {
  if (!set_object_name_) return;
  VkDebugUtilsObjectNameInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT};
  info.objectType = type;
  info.objectHandle = object;
  info.pObjectName = name.c_str();
  set_object_name_(handle_, &info);
}

}  // namespace rw::vulkan
