#include "backends/vulkan/device/cooperative.h"

#include <algorithm>

namespace rw::vulkan {

namespace {

std::vector<VkCooperativeMatrixPropertiesKHR> offered_by(VkInstance instance,
                                                         VkPhysicalDevice device) {
  const auto ask = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
      vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (!ask) return {};
  return list<VkCooperativeMatrixPropertiesKHR>(
      [&](uint32_t* count, VkCooperativeMatrixPropertiesKHR* all) { ask(device, count, all); },
      {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR});
}

struct Has {
  bool matrix, bf16;
};

// Feature bits may be set for extensions that are missing, so the extensions are checked first.
Has query_features(VkPhysicalDevice device) {
  const bool has_bf16 = has_extension(device, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
      has_bf16 ? &bf16 : nullptr};
  VkPhysicalDeviceSubgroupSizeControlFeatures control{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, &matrix};
  VkPhysicalDeviceVulkan12Features f12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                       &control};
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &f12};
  vkGetPhysicalDeviceFeatures2(device, &all);
  const bool has = matrix.cooperativeMatrix && f12.vulkanMemoryModel &&
                   f12.vulkanMemoryModelDeviceScope && control.subgroupSizeControl &&
                   control.computeFullSubgroups;
  return {has, has && bf16.shaderBFloat16Type && bf16.shaderBFloat16CooperativeMatrix};
}

uint32_t query_subgroup(VkPhysicalDevice device) {
  VkPhysicalDeviceSubgroupSizeControlProperties control{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties p12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
                                         &control};
  VkPhysicalDeviceVulkan11Properties p11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                         &p12};
  VkPhysicalDeviceProperties2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &p11};
  vkGetPhysicalDeviceProperties2(device, &all);
  const bool may_require = control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT;
  if (!may_require && control.minSubgroupSize != control.maxSubgroupSize) return 0;
  const uint32_t size = matrix_subgroup(p12.driverID, p11.subgroupSize, control.minSubgroupSize,
                                        control.maxSubgroupSize);
  const uint32_t threads = matrix_subgroups * size;
  return threads <= all.properties.limits.maxComputeWorkGroupInvocations ? size : 0;
}

}  // namespace

MatrixShape matrix_shape(std::span<const VkCooperativeMatrixPropertiesKHR> offered,
                         VkComponentTypeKHR factor) {
  MatrixShape best{};
  const auto volume = [](const MatrixShape& s) { return s[0] * s[1] * s[2]; };
  for (const auto& o : offered) {
    const MatrixShape shape{o.MSize, o.NSize, o.KSize};
    const bool has_sides = std::all_of(shape.begin(), shape.end(),
                                       [](uint32_t side) { return side == 8 || side == 16; });
    if (has_sides && o.scope == VK_SCOPE_SUBGROUP_KHR && o.AType == factor && o.BType == factor &&
        o.CType == VK_COMPONENT_TYPE_FLOAT32_KHR && o.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
        !o.saturatingAccumulation && volume(shape) > volume(best))
      best = shape;
  }
  return best;
}

bool has_few_registers(VkDriverId driver) {
  return driver == VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA ||
         driver == VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS;
}

uint32_t matrix_subgroup(VkDriverId driver, uint32_t reported, uint32_t least, uint32_t most) {
  constexpr uint32_t largest =
      32;  // tile_cooperative.glsl: every thread loads a word of each panel
  uint32_t size = reported;
  switch (driver) {
    case VK_DRIVER_ID_AMD_PROPRIETARY:
    case VK_DRIVER_ID_AMD_OPEN_SOURCE:
    case VK_DRIVER_ID_MESA_RADV:
      size = 32;
      break;
    default:
      if (has_few_registers(driver)) size = least;
      break;
  }
  return size >= least && size <= std::min(most, largest) ? size : 0;
}

uint32_t tile_subgroups(VkDriverId driver, uint32_t subgroup) {
  if (has_few_registers(driver) && subgroup) return 128 / subgroup;
  return driver == VK_DRIVER_ID_NVIDIA_PROPRIETARY ? 4 : matrix_subgroups;
}

CooperativeMatrices query_cooperative(VkInstance instance, VkPhysicalDevice device) {
  if (!has_extension(device, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) ||
      !has_extension(device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
    return {};
  const Has has = query_features(device);
  const uint32_t subgroup = query_subgroup(device);
  if (!has.matrix || subgroup == 0) return {};
  const std::vector<VkCooperativeMatrixPropertiesKHR> offered = offered_by(instance, device);
  const MatrixShape f16 = matrix_shape(offered, VK_COMPONENT_TYPE_FLOAT16_KHR);
  if (f16 == MatrixShape{}) return {};
  return {f16, has.bf16 ? matrix_shape(offered, VK_COMPONENT_TYPE_BFLOAT16_KHR) : MatrixShape{},
          subgroup};
}

}  // namespace rw::vulkan
