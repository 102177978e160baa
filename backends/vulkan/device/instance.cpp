#include "backends/vulkan/device/instance.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "backends/listing.h"

namespace rw::vulkan {

namespace {

std::string what_to_install() {
  const std::string gpu = unoffered_gpu();
  return !gpu.empty() ? gpu
                      : "install the GPU vendor's driver, or the CPU driver with `apt install "
                        "mesa-vulkan-drivers`";
}

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
constexpr VkDebugUtilsMessageSeverityFlagsEXT kSeverities =
    VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;

std::atomic<uint64_t> message_count = 0;

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  ++message_count;
  std::fprintf(stderr, "validation: %s\n", data->pMessage);
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info() {
  VkDebugUtilsMessengerCreateInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  info.messageSeverity = kSeverities;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = on_message;
  return info;
}

bool has_instance_extension(const char* name) {
  const auto all = list<VkExtensionProperties>([](uint32_t* count, VkExtensionProperties* data) {
    vkEnumerateInstanceExtensionProperties(nullptr, count, data);
  });
  return std::any_of(all.begin(), all.end(),
                     [&](auto& e) { return !std::strcmp(e.extensionName, name); });
}

bool has_layer(const char* name) {
  const auto all = list<VkLayerProperties>([](uint32_t* count, VkLayerProperties* data) {
    vkEnumerateInstanceLayerProperties(count, data);
  });
  return std::any_of(all.begin(), all.end(),
                     [&](auto& l) { return !std::strcmp(l.layerName, name); });
}

bool usable(VkPhysicalDevice device) {
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(device, &properties);
  if (properties.apiVersion < VK_API_VERSION_1_2) return false;
  VkPhysicalDeviceVulkan12Features features12{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &features12};
  vkGetPhysicalDeviceFeatures2(device, &features);
  return features12.timelineSemaphore;
}

int rank(VkPhysicalDevice device) {
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(device, &properties);
  switch (properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return 2;
    default:
      return 3;
  }
}

}  // namespace

uint64_t validation_messages() {
  return message_count;
}

Instance::Instance() {
  uint32_t version = 0;
  vkEnumerateInstanceVersion(&version);
  check<DeviceError>(version >= VK_API_VERSION_1_2, "vulkan",
                     "the Vulkan loader must be 1.2 or newer: `apt install libvulkan1`");

  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  std::vector<const char*> extensions;
  debug_utils_ = has_instance_extension(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
  if (debug_utils_) extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
  if (has_instance_extension(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
    extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
    info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
  }

  VkValidationFeatureEnableEXT enable = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  VkValidationFeaturesEXT validation{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
  validation.enabledValidationFeatureCount = 1;
  validation.pEnabledValidationFeatures = &enable;
  const bool validate = env_flag("REWIND_VALIDATE");
  if (validate) {
    check<DeviceError>(has_layer(kValidationLayer), "vulkan",
                       "REWIND_VALIDATE needs the layer: `apt install vulkan-validationlayers`");
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
    info.pNext = &validation;
  }

  VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pEngineName = "rewind";
  application.apiVersion = VK_API_VERSION_1_2;
  info.pApplicationInfo = &application;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  VkResult result = vkCreateInstance(&info, nullptr, &handle_);
  check<DeviceError>(result != VK_ERROR_INCOMPATIBLE_DRIVER, "vulkan", "no Vulkan driver found: {}",
                     what_to_install());
  vk_check(result, "vkCreateInstance");

  if (validate && debug_utils_) {
    auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(handle_, "vkCreateDebugUtilsMessengerEXT"));
    VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info();
    vk_check(create(handle_, &messenger, nullptr, &messenger_), "vkCreateDebugUtilsMessengerEXT");
  }
}

Instance::~Instance() {
  if (messenger_) {
    auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(handle_, "vkDestroyDebugUtilsMessengerEXT"));
    destroy(handle_, messenger_, nullptr);
  }
  // The first instance stays, and with it the driver: NVIDIA's can be loaded some 60 times in a
  // process, and then no more.
  static std::atomic<VkInstance> kept = nullptr;
  VkInstance none = nullptr;
  if (!kept.compare_exchange_strong(none, handle_)) vkDestroyInstance(handle_, nullptr);
}

std::vector<VkPhysicalDevice> Instance::devices() const {
  auto all = list<VkPhysicalDevice>([&](uint32_t* count, VkPhysicalDevice* data) {
    vk_check(vkEnumeratePhysicalDevices(handle_, count, data), "vkEnumeratePhysicalDevices");
  });
  const size_t count = all.size();
  std::erase_if(all, [](VkPhysicalDevice d) { return !usable(d); });
  std::stable_sort(all.begin(), all.end(), [](auto a, auto b) { return rank(a) < rank(b); });
  check<DeviceError>(!all.empty(), "vulkan",
                     "no device with Vulkan 1.2 and timeline semaphores among {} found: {}", count,
                     what_to_install());
  return all;
}

}  // namespace rw::vulkan
