// Names and numbers of the Vulkan registry that newer drivers offer and Debian 12's vulkan.h
// (1.3.239) does not know.
#pragma once

#include <vulkan/vulkan.h>

#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
inline constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR =
    static_cast<VkStructureType>(1000506000);
inline constexpr auto VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR =
    static_cast<VkStructureType>(1000506001);

// These are what they were in NVIDIA's extension, from which this one was made.
using VkComponentTypeKHR = VkComponentTypeNV;
using VkScopeKHR = VkScopeNV;
using VkPhysicalDeviceCooperativeMatrixFeaturesKHR = VkPhysicalDeviceCooperativeMatrixFeaturesNV;
inline constexpr auto VK_COMPONENT_TYPE_FLOAT16_KHR = VK_COMPONENT_TYPE_FLOAT16_NV;
inline constexpr auto VK_COMPONENT_TYPE_FLOAT32_KHR = VK_COMPONENT_TYPE_FLOAT32_NV;
inline constexpr auto VK_SCOPE_SUBGROUP_KHR = VK_SCOPE_SUBGROUP_NV;

struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void* pNext;
  uint32_t MSize, NSize, KSize;
  VkComponentTypeKHR AType, BType, CType, ResultType;
  VkBool32 saturatingAccumulation;
  VkScopeKHR scope;
};
using PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR =
    VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, VkCooperativeMatrixPropertiesKHR*);
#endif

#ifndef VK_KHR_shader_bfloat16
#define VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME "VK_KHR_shader_bfloat16"
inline constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR =
    static_cast<VkStructureType>(1000141000);
inline constexpr auto VK_COMPONENT_TYPE_BFLOAT16_KHR = static_cast<VkComponentTypeKHR>(1000141000);

struct VkPhysicalDeviceShaderBfloat16FeaturesKHR {
  VkStructureType sType;
  void* pNext;
  VkBool32 shaderBFloat16Type, shaderBFloat16DotProduct, shaderBFloat16CooperativeMatrix;
};
#endif
