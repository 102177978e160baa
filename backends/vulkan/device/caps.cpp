#include "backends/vulkan/device/caps.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "backends/vulkan/device/choices.h"
#include "backends/vulkan/device/shader_table.h"

namespace rw::vulkan {

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMostBlock =
    4 * kGiB;  // larger than any sensible tensor; some drivers lie above
// Operating systems take GPUs that compute for seconds for hung: after 2 s on Windows, 0.6 to 10 s
// on Linux.
constexpr double kDispatchSeconds = 0.25;

// Faults of drivers. `first` to `last` are major versions, as in "Mesa 22.3.6".
struct Quirk {
  VkDriverId driver;
  int first, last;
  void (*apply)(Caps&);
};

const Quirk kQuirks[] = {
    // 32-bit overflows in buffer sizes.
    {VK_DRIVER_ID_MESA_LLVMPIPE, 0, 999,
     [](Caps& c) { c.max_block = std::min(c.max_block, kGiB); }},
    // packHalf2x16 is v_cvt_pkrtz_f16_f32: toward zero. The self-check would find it, later.
    {VK_DRIVER_ID_MESA_RADV, 0, 999, [](Caps& c) { c.packs_halves = false; }},
};

int major_version(const std::string& text) {
  size_t digit = text.find_first_of("0123456789");
  return digit == std::string::npos ? 0 : std::atoi(text.c_str() + digit);
}

void apply_quirks(Caps& caps) {
  const int version = major_version(caps.driver_version);
  for (const Quirk& q : kQuirks)
    if (q.driver == caps.driver_id && version >= q.first && version <= q.last) q.apply(caps);
}

// Features that a device can do without, the least loss first. Kernels that need one have
// alternatives. A device that fails its self-check with a feature does without it; the word turns
// it off.
struct Optional {
  const char* name;
  const char* word;  // of REWIND_WITHOUT
  bool (*is_on)(const Caps&);
  void (*turn_off)(Caps&);
};

template <uint32_t Bits>
constexpr Optional feature_bits(const char* name, const char* word) {
  return {name, word, [](const Caps& c) { return (c.features & Bits) != 0; },
          [](Caps& c) { c.features &= ~Bits; }};
}

const Optional kOptional[] = {
    feature_bits<feature::texels>("texel buffers", "texels"),
    feature_bits<feature::cooperative_bf16>("bf16 matrices", "bf16-matrices"),
    feature_bits<feature::cooperative | feature::cooperative_bf16>("cooperative matrices",
                                                                   "matrices"),
    {"half packing", "half-packing",
     [](const Caps& c) { return c.packs_halves && (c.features & feature::storage16); },
     [](Caps& c) { c.packs_halves = false; }},
    feature_bits<feature::storage16 | feature::float16 | feature::cooperative |
                 feature::cooperative_bf16>("16-bit storage", "f16-storage"),
    {"large shared memory", "large-shared", has_large_shared,
     [](Caps& c) { c.shared_bytes = std::min(c.shared_bytes, large_shared / 2); }},
    {"push descriptors", "push-descriptors", [](const Caps& c) { return c.push_descriptors; },
     [](Caps& c) { c.push_descriptors = false; }},
    feature_bits<feature::shuffle>("subgroup shuffle", "shuffle"),
    feature_bits<feature::address>("buffer addresses", "addresses"),
    feature_bits<feature::arithmetic>("subgroup arithmetic", "arithmetic"),
    // There is no alternative: without this feature, f16 and bf16 are errors, and f32 trains.
    feature_bits<feature::halves>("16-bit floats", "halves"),
};

// Threads per workgroup of kernels with `local: subgroup`.
uint32_t row_workgroup(const Caps& caps) {
  return caps.is_cpu ? caps.subgroup_size
                     : static_cast<uint32_t>(round_up(128, caps.subgroup_size));
}

// Switches that make one device behave like another, mostly for tests.
void apply_environment(Caps& caps) {
  if (env_flag("REWIND_LIKE_GPU")) {  // the kernels and workgroups that GPUs get, on a CPU driver
    caps.is_cpu = false;
    caps.features &= ~feature::texels;
    caps.workgroup_size = row_workgroup(caps);
  }
  // CPU drivers offer cooperative matrices as a reference, not for speed.
  if (caps.is_cpu) caps.features &= ~(feature::cooperative | feature::cooperative_bf16);
  for (const Optional& o : kOptional)
    if (is_without(o.word)) o.turn_off(caps);
  if (is_without("unified-memory")) caps.unified_memory = false;
  if (is_without("timestamps")) caps.timestamp_ns = 0;
  if (is_without("memory-budget")) caps.memory_budget = false;
  if (const auto us = env_limit("dispatch-us"))
    caps.dispatch_seconds = static_cast<double>(*us) * 1e-6;
  caps.max_range = std::min(caps.max_range, env_limit("range").value_or(caps.max_range));
  caps.max_block = std::min(caps.max_block, env_limit("block").value_or(caps.max_block));
  caps.shared_bytes = static_cast<uint32_t>(
      std::min<uint64_t>(caps.shared_bytes, env_limit("shared").value_or(caps.shared_bytes)));
  if (const auto subgroups = env_limit("tile-subgroups")) {
    caps.few_registers = *subgroups > matrix_subgroups;
    caps.matrices.tile_subgroups = *subgroups < matrix_subgroups ? 4
                                   : caps.few_registers          ? 16
                                                                 : matrix_subgroups;
  }
}

uint32_t subgroup_features(VkSubgroupFeatureFlags ops) {
  uint32_t f = 0;
  if (ops & VK_SUBGROUP_FEATURE_BASIC_BIT) f |= feature::subgroup;
  if (ops & VK_SUBGROUP_FEATURE_VOTE_BIT) f |= feature::vote;
  if (ops & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) f |= feature::arithmetic;
  if (ops & VK_SUBGROUP_FEATURE_BALLOT_BIT) f |= feature::ballot;
  if (ops & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) f |= feature::shuffle;
  return f;
}

void query_features(VkPhysicalDevice device, Caps& caps) {
  VkPhysicalDeviceVulkan12Features f12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan11Features f11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &f12};
  VkPhysicalDeviceSubgroupSizeControlFeatures control{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  VkPhysicalDeviceFeatures2 f{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &f11};
  const bool has_control = has_extension(device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  if (has_control) f12.pNext = &control;
  vkGetPhysicalDeviceFeatures2(device, &f);
  caps.features |= feature::halves;
  if (f12.shaderFloat16) caps.features |= feature::float16;
  if (f11.storageBuffer16BitAccess) caps.features |= feature::storage16;
  if (f12.bufferDeviceAddress) caps.features |= feature::address;
  caps.subgroup_size_control = has_control && control.subgroupSizeControl;
}

void query_matrices(VkInstance instance, VkPhysicalDevice device, Caps& caps) {
  constexpr uint32_t needed = feature::float16 | feature::storage16 | feature::subgroup;
  if ((caps.features & needed) == needed) caps.matrices = query_cooperative(instance, device);
  caps.matrices.tile_subgroups = tile_subgroups(caps.driver_id, caps.matrices.subgroup);
  if (caps.matrices.f16 != MatrixShape{}) caps.features |= feature::cooperative;
  if (caps.matrices.bf16 != MatrixShape{}) caps.features |= feature::cooperative_bf16;
}

// The heap of the blocks.
void query_heap(VkPhysicalDevice device, Caps& caps) {
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(device, &memory);
  const uint32_t type = memory_types(memory, ~0u, MemoryUse::device, caps.unified_memory).front();
  caps.heap_bytes = memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size;
}

std::string type_name(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return "discrete GPU";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return "integrated GPU";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return "virtual GPU";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return "CPU";
    default:
      return "other";
  }
}

// Asks the device for `properties`, a structure of an extension.
template <class Properties>
Properties ask(VkPhysicalDevice device, Properties properties) {
  VkPhysicalDeviceProperties2 p{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &properties};
  vkGetPhysicalDeviceProperties2(device, &p);
  return properties;
}

std::string pci_address(VkPhysicalDevice device) {
  if (!has_extension(device, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) return "";
  const auto pci = ask(device, VkPhysicalDevicePCIBusInfoPropertiesEXT{
                                   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT});
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.pciDomain, pci.pciBus, pci.pciDevice,
                     pci.pciFunction);
}

uint32_t multiprocessors(VkPhysicalDevice device, VkPhysicalDeviceType type) {
  uint32_t told = 0;
  if (has_extension(device, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    told = ask(device,
               VkPhysicalDeviceShaderSMBuiltinsPropertiesNV{
                   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV})
               .shaderSMCount;
  } else if (has_extension(device, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME)) {
    told = ask(device,
               VkPhysicalDeviceShaderCoreProperties2AMD{
                   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD})
               .activeComputeUnitCount;
  }
  if (told > 0) return told;
  return type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ? 8 : middling_multiprocessors;
}

void query_properties(VkPhysicalDevice device, Caps& caps) {
  VkPhysicalDeviceVulkan12Properties p12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  VkPhysicalDeviceVulkan11Properties p11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                         &p12};
  VkPhysicalDeviceMaintenance4Properties m4{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
  VkPhysicalDeviceSubgroupSizeControlProperties control{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES, &m4};
  VkPhysicalDeviceProperties2 p{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &p11};
  m4.maxBufferSize = kGiB;
  const bool has_m4 = has_extension(device, VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
  if (!has_m4) control.pNext = nullptr;
  if (caps.subgroup_size_control)
    p12.pNext = &control;
  else if (has_m4)
    p12.pNext = &m4;
  vkGetPhysicalDeviceProperties2(device, &p);

  const VkPhysicalDeviceLimits& limits = p.properties.limits;
  caps.name = p.properties.deviceName;
  caps.driver = p12.driverName;
  caps.driver_version = p12.driverInfo;
  caps.driver_id = p12.driverID;
  caps.driver_number = p.properties.driverVersion;
  for (uint8_t byte : p11.deviceUUID) caps.uuid += fmt::format("{:02x}", byte);
  caps.type = type_name(p.properties.deviceType);
  caps.pci_address = pci_address(device);
  caps.is_cpu = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  caps.unified_memory = is_unified(p.properties.deviceType);

  caps.few_registers = has_few_registers(caps.driver_id);
  if (p11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT)
    caps.features |= subgroup_features(p11.subgroupSupportedOperations);
  if (!(control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT))
    caps.subgroup_size_control = false;
  const bool may_choose = caps.few_registers && caps.subgroup_size_control;
  caps.subgroup_size = std::max(1u, may_choose ? control.minSubgroupSize : p11.subgroupSize);
  caps.workgroup_size = row_workgroup(caps);
  caps.multiprocessors = multiprocessors(device, p.properties.deviceType);
  if (!caps.is_cpu) caps.dispatch_seconds = kDispatchSeconds;

  caps.float_modes = float_modes(p12);
  caps.shared_bytes = limits.maxComputeSharedMemorySize;
  caps.max_push_bytes = limits.maxPushConstantsSize;
  caps.max_threads = limits.maxComputeWorkGroupInvocations;
  std::copy_n(limits.maxComputeWorkGroupCount, 3, caps.max_groups.begin());
  caps.max_range = limits.maxStorageBufferRange;
  caps.max_block = std::min({kMostBlock, m4.maxBufferSize, p11.maxMemoryAllocationSize});
  caps.offset_alignment = std::max<uint64_t>(16, limits.minStorageBufferOffsetAlignment);
  if (caps.is_cpu && limits.maxTexelBufferElements >= kGiB / 16) {
    caps.features |= feature::texels;
    caps.max_block = std::min(caps.max_block, 16 * uint64_t{limits.maxTexelBufferElements});
    caps.offset_alignment =
        std::max<uint64_t>(caps.offset_alignment, limits.minTexelBufferOffsetAlignment);
  }
  caps.timestamp_ns = limits.timestampPeriod;
}

}  // namespace

std::vector<std::string> optional_features(const Caps& caps) {
  std::vector<std::string> names;
  for (const Optional& o : kOptional)
    if (o.is_on(caps)) names.emplace_back(o.name);
  return names;
}

void refuse(Caps& caps, const std::string& feature) {
  for (const Optional& o : kOptional)
    if (o.name == feature) o.turn_off(caps);
}

Caps query_caps(VkInstance instance, VkPhysicalDevice device) {
  Caps caps;
  caps.push_descriptors = has_extension(device, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  caps.memory_budget = has_extension(device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  caps.portability = has_extension(device, "VK_KHR_portability_subset");
  query_features(device, caps);
  query_properties(device, caps);
  query_matrices(instance, device, caps);
  query_heap(device, caps);
  apply_quirks(caps);
  apply_environment(caps);
  return caps;
}

}  // namespace rw::vulkan
