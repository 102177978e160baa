// Choices of memory types and queues, tested with reports of real devices: those of Mesa 26.1.6
// from its drivers, the others from reports that users published (vulkan.gpuinfo.org).
#include <doctest/doctest.h>

#include "backends/vulkan/device/choices.h"
#include "backends/vulkan/device/cooperative.h"

namespace rw::vulkan {

namespace {

using Types = std::vector<uint32_t>;

// Flags in hex as reports have them: 1 device, 2 host visible, 4 coherent, 8 host cached, 10 lazy,
// 20 protected, 40 and 80 AMD's.
struct Memory {
  std::vector<std::pair<double, bool>> heaps;           // GiB; device local?
  std::vector<std::pair<uint32_t, uint32_t>> types;     // flags, heap
  std::vector<std::pair<uint32_t, uint32_t>> families;  // 1 graphics, 2 compute, 4 transfer; queues
  VkPhysicalDeviceType type;
};

struct DeviceCase {
  const char* name;
  Memory memory;
  Types device, upload, download, host;  // expected
  uint32_t family;
};

constexpr auto kDiscrete = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
constexpr auto kIntegrated = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;

const DeviceCase device_cases[] = {
    {"RX Vega, RADV, window of 256 MiB",
     {{{7.75, true}, {7.79, false}, {0.25, true}},
      {{0x1, 0},
       {0x1, 0},
       {0x6, 1},
       {0x7, 2},
       {0x7, 2},
       {0xe, 1},
       {0xe, 1},
       {0xc1, 0},
       {0xc6, 1},
       {0xc7, 2},
       {0xce, 1}},
      {{0xf, 1}, {0xe, 4}, {0x8, 1}},
      kDiscrete},
     {0, 1, 3, 4},
     {3, 4, 2, 5, 6},
     {5, 6, 2, 3, 4},
     {5, 6, 2},
     1},
    {"RX 7900 XTX, RADV, resizable BAR",
     {{{30.97, false}, {23.98, true}},
      {{0x1, 1},
       {0x1, 1},
       {0x6, 0},
       {0x7, 1},
       {0x7, 1},
       {0xe, 0},
       {0xe, 0},
       {0xc1, 1},
       {0xc6, 0},
       {0xc7, 1},
       {0xce, 0}},
      {{0xf, 1}, {0xe, 4}, {0x8, 1}},
      kDiscrete},
     {0, 1, 3, 4},
     {3, 4, 2, 5, 6},
     {5, 6, 2, 3, 4},
     {5, 6, 2},
     1},
    {"Radeon 680M, RADV: a large heap that is not local",
     {{{5.0, false}, {10.0, true}},
      {{0x1, 1},
       {0x1, 1},
       {0x6, 0},
       {0x7, 1},
       {0x7, 1},
       {0xe, 0},
       {0xe, 0},
       {0xc1, 1},
       {0xc6, 0},
       {0xc7, 1},
       {0xce, 0}},
      {{0xf, 1}, {0xe, 4}},
      kIntegrated},
     {3, 4, 0, 1, 5, 6, 2},
     {3, 4, 2, 5, 6},
     {5, 6, 3, 4, 2},
     {5, 6, 2},
     1},
    {"RX 6700 XT, AMD's own driver",
     {{{11.98, true}, {15.9, false}, {0.25, true}},
      {{0x1, 0}, {0x7, 2}, {0x6, 1}, {0xe, 1}, {0xc1, 0}, {0xc7, 2}, {0xc6, 1}, {0xce, 1}},
      {{0xf, 1}, {0xe, 2}, {0xc, 2}},
      kDiscrete},
     {0, 1},
     {1, 2, 3},
     {3, 2, 1},
     {3, 2},
     1},
    {"RTX 3080, NVIDIA's own driver, window of 246 MiB",
     {{{10.0, true}, {24.0, false}, {0.24, true}},
      {{0x0, 1}, {0x1, 0}, {0x6, 1}, {0xe, 1}, {0x7, 2}},
      {{0xf, 16}, {0xc, 2}, {0xe, 8}, {0x2c, 1}},
      kDiscrete},
     {1, 4},
     {4, 2, 3},
     {3, 2, 4},
     {3, 2},
     2},
    {"RTX 4090, NVIDIA's own driver, resizable BAR",
     {{{24.0, true}, {47.0, false}},
      {{0x0, 1}, {0x1, 0}, {0x6, 1}, {0xe, 1}, {0x7, 0}},
      {{0xf, 16}, {0xc, 2}, {0xe, 8}, {0x2c, 1}, {0x4c, 1}},
      kDiscrete},
     {1, 4},
     {4, 2, 3},
     {3, 2, 4},
     {3, 2},
     2},
    {"GTX 1060, NVIDIA's own driver of 2020: many types for images only",
     {{{6.0, true}, {12.0, false}},
      {{0x0, 1},
       {0x0, 1},
       {0x0, 1},
       {0x0, 1},
       {0x0, 1},
       {0x0, 1},
       {0x0, 1},
       {0x1, 0},
       {0x1, 0},
       {0x6, 1},
       {0xe, 1}},
      {{0xf, 16}, {0x4, 2}, {0x2, 8}},
      kDiscrete},
     {7, 8},
     {9, 10},
     {10, 9},
     {10, 9},
     2},
    {"Turing, NVK",
     {{{3.0, true}, {17.66, false}}, {{0x1, 0}, {0x7, 0}, {0xe, 1}}, {{0xf, 1}}, kDiscrete},
     {0, 1},
     {1, 2},
     {2, 1},
     {2},
     0},
    {"Iris Xe, ANV",
     {{{11.6, true}}, {{0x7, 0}, {0xf, 0}, {0x1, 0}}, {{0x7, 1}}, kIntegrated},
     {1, 0, 2},
     {0, 1},
     {1, 0},
     {1, 0},
     0},
    {"Arc A770, ANV",
     {{{15.9, true}, {23.4, false}},
      {{0x1, 0}, {0xe, 1}, {0x7, 0}},
      {{0xf, 1}, {0xe, 1}},
      kDiscrete},
     {0, 2},
     {2, 1},
     {1, 2},
     {1},
     1},
    {"Apple M1, Honeykrisp",
     {{{11.77, true}}, {{0xf, 0}, {0x7, 0}}, {{0xf, 1}}, kIntegrated},
     {0, 1},
     {0, 1},
     {0, 1},
     {0, 1},
     0},
    {"Apple M1, MoltenVK",
     {{{10.67, true}},
      {{0x1, 0}, {0xf, 0}, {0xb, 0}, {0x11, 0}},
      {{0x7, 1}, {0x7, 1}},
      kIntegrated},
     {1, 0, 2},
     {1},
     {1},
     {1},
     0},
    {"Mali-G710",
     {{{7.5, true}}, {{0x7, 0}, {0xb, 0}, {0xf, 0}, {0x11, 0}, {0x21, 0}}, {{0x7, 2}}, kIntegrated},
     {2, 0, 1},
     {0, 2},
     {2, 0},
     {2, 0},
     0},
    {"Adreno 740, Turnip",
     {{{4.0, true}}, {{0x7, 0}, {0xf, 0}, {0xb, 0}, {0x11, 0}}, {{0x7, 1}}, kIntegrated},
     {1, 0, 2},
     {0, 1},
     {1, 0},
     {1, 0},
     0},
    {"lavapipe",
     {{{2.0, true}}, {{0xf, 0}}, {{0x7, 1}}, VK_PHYSICAL_DEVICE_TYPE_CPU},
     {0},
     {0},
     {0},
     {0},
     0},
};

VkPhysicalDeviceMemoryProperties properties(const Memory& memory) {
  VkPhysicalDeviceMemoryProperties all{};
  for (const auto& [gib, is_local] : memory.heaps)
    all.memoryHeaps[all.memoryHeapCount++] = {static_cast<VkDeviceSize>(gib * (1 << 30)),
                                              is_local ? 1u * VK_MEMORY_HEAP_DEVICE_LOCAL_BIT : 0u};
  for (const auto& [flags, heap] : memory.types)
    all.memoryTypes[all.memoryTypeCount++] = {flags, heap};
  return all;
}

std::vector<VkQueueFamilyProperties> families(const Memory& memory) {
  std::vector<VkQueueFamilyProperties> all;
  for (const auto& [flags, count] : memory.families) all.push_back({flags, count, 64, {1, 1, 1}});
  return all;
}

// Cooperative matrices as drivers list them: {M, N, K, A, B, C, result, scope}; types: 0 f16,
// 1 f32, 3 s8, 5 s32, 1000141000 bf16; scopes: 2 workgroup, 3 subgroup.
using ListedShape = std::array<uint32_t, 8>;

std::vector<VkCooperativeMatrixPropertiesKHR> listed(const std::vector<ListedShape>& shapes) {
  std::vector<VkCooperativeMatrixPropertiesKHR> all;
  for (const auto& [m, n, k, a, b, c, result, scope] : shapes)
    all.push_back({VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR, nullptr, m, n, k,
                   VkComponentTypeKHR(a), VkComponentTypeKHR(b), VkComponentTypeKHR(c),
                   VkComponentTypeKHR(result), VK_FALSE, VkScopeKHR(scope)});
  return all;
}

TEST_CASE("device choices: shapes of cooperative matrices" * doctest::test_suite("host")) {
  constexpr uint32_t bf16 = VK_COMPONENT_TYPE_BFLOAT16_KHR;
  const auto best = [](const std::vector<ListedShape>& shapes) {
    const auto all = listed(shapes);
    return std::pair(matrix_shape(all, VK_COMPONENT_TYPE_FLOAT16_KHR),
                     matrix_shape(all, VK_COMPONENT_TYPE_BFLOAT16_KHR));
  };
  using Shapes = std::pair<MatrixShape, MatrixShape>;
  const MatrixShape none{}, cube{16, 16, 16};
  CHECK(best({}) == Shapes{none, none});
  // RADV, RX 7900 XTX: sums of f16 are not for us.
  CHECK(best({{16, 16, 16, 0, 0, 0, 0, 3}, {16, 16, 16, 0, 0, 1, 1, 3}}) == Shapes{cube, none});
  CHECK(best({{16, 16, 16, 0, 0, 0, 0, 3}}) == Shapes{none, none});
  // RX 9070 XT
  CHECK(best({{16, 16, 16, 0, 0, 1, 1, 3}, {16, 16, 16, bf16, bf16, 1, 1, 3}}) ==
        Shapes{cube, cube});
  // NVK, Ampere: several shapes, cubes among them.
  CHECK(best({{16, 16, 16, 0, 0, 0, 0, 3},
              {16, 8, 16, 0, 0, 1, 1, 3},
              {16, 16, 16, 0, 0, 1, 1, 3},
              {16, 8, 8, 0, 0, 1, 1, 3},
              {16, 16, 32, 3, 3, 5, 5, 3}}) == Shapes{cube, none});
  // lavapipe
  CHECK(best({{8, 8, 8, 0, 0, 1, 1, 3}, {8, 8, 8, 3, 3, 5, 5, 3}}) ==
        Shapes{MatrixShape{8, 8, 8}, none});
  // ANV: Arc of the first and of the second generation.
  CHECK(best({{8, 8, 16, 0, 0, 1, 1, 3}, {8, 8, 16, bf16, bf16, 1, 1, 3}}) ==
        Shapes{MatrixShape{8, 8, 16}, MatrixShape{8, 8, 16}});
  CHECK(best({{8, 16, 16, 0, 0, 1, 1, 3}}) == Shapes{MatrixShape{8, 16, 16}, none});
  // Sides that the kernels do not have, and a workgroup's matrices.
  CHECK(best({{8, 8, 32, 0, 0, 1, 1, 3}, {64, 64, 16, 0, 0, 1, 1, 3}}) == Shapes{none, none});
  CHECK(best({{16, 16, 16, 0, 0, 1, 1, 2}}) == Shapes{none, none});
  auto saturating = listed({{16, 16, 16, 0, 0, 1, 1, 3}});
  saturating[0].saturatingAccumulation = VK_TRUE;
  CHECK(matrix_shape(saturating, VK_COMPONENT_TYPE_FLOAT16_KHR) == none);
}

TEST_CASE("device choices: subgroups of cooperative matrices" * doctest::test_suite("host")) {
  CHECK(matrix_subgroup(VK_DRIVER_ID_MESA_RADV, 64, 32, 64) == 32);
  CHECK(matrix_subgroup(VK_DRIVER_ID_MESA_RADV, 64, 64, 64) == 0);  // before RDNA
  CHECK(matrix_subgroup(VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, 32, 16, 32) == 16);
  CHECK(matrix_subgroup(VK_DRIVER_ID_NVIDIA_PROPRIETARY, 32, 32, 32) == 32);
  CHECK(matrix_subgroup(VK_DRIVER_ID_MESA_LLVMPIPE, 8, 8, 8) == 8);
  CHECK(matrix_subgroup(VK_DRIVER_ID_QUALCOMM_PROPRIETARY, 64, 64, 128) == 0);
  CHECK(tile_subgroups(VK_DRIVER_ID_MESA_RADV, 32) == 8);
  CHECK(tile_subgroups(VK_DRIVER_ID_NVIDIA_PROPRIETARY, 32) == 4);
  CHECK(tile_subgroups(VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, 8) == 16);  // Arc, first generation
  CHECK(tile_subgroups(VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, 16) == 8);  // second
  CHECK(tile_subgroups(VK_DRIVER_ID_INTEL_OPEN_SOURCE_MESA, 0) == 8);   // without matrices
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("device choices: memory and queues of real devices") {
  for (const DeviceCase& device : device_cases) {
    CAPTURE(device.name);
    const VkPhysicalDeviceMemoryProperties memory = properties(device.memory);
    const auto types = [&](MemoryUse use) {
      return memory_types(memory, ~0u, use, is_unified(device.memory.type));
    };
    CHECK(types(MemoryUse::device) == device.device);
    CHECK(types(MemoryUse::upload) == device.upload);
    CHECK(types(MemoryUse::download) == device.download);
    CHECK(types(MemoryUse::host) == device.host);
    CHECK(compute_family(families(device.memory)) == device.family);
  }
}

TEST_CASE("device choices: what holds on every device") {
  for (const DeviceCase& device : device_cases) {
    CAPTURE(device.name);
    const VkPhysicalDeviceMemoryProperties memory = properties(device.memory);
    for (const MemoryUse use :
         {MemoryUse::device, MemoryUse::upload, MemoryUse::download, MemoryUse::host}) {
      const Types all = memory_types(memory, ~0u, use, is_unified(device.memory.type));
      for (const uint32_t type : all) {
        const VkMemoryPropertyFlags flags = memory.memoryTypes[type].propertyFlags;
        CHECK(!(flags & 0xf0));  // not lazy, not protected, not AMD's that need a feature
        if (use != MemoryUse::device) CHECK((flags & kHostMemory) == kHostMemory);
        // Host memory takes none of the device's own, not even where it is full.
        const bool is_local = flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
        if (use == MemoryUse::host && device.memory.type == kDiscrete) CHECK(!is_local);
        // A buffer may be allowed this one only.
        CHECK(memory_types(memory, 1u << type, use, is_unified(device.memory.type)) == Types{type});
      }
    }
    CHECK_THROWS_AS(memory_types(memory, 0, MemoryUse::device, false), DeviceError);
  }
  CHECK_THROWS_AS(compute_family({}), DeviceError);
  const VkQueueFamilyProperties copies[] = {{0xc, 2, 64, {1, 1, 1}}, {0xf, 0, 64, {1, 1, 1}}};
  CHECK_THROWS_AS(compute_family(copies), DeviceError);
}

TEST_CASE("device choices: float modes that a device keeps, each width by itself where it can") {
  const auto modes = [](VkShaderFloatControlsIndependence independence, bool of_16, bool of_32) {
    VkPhysicalDeviceVulkan12Properties p{};
    p.denormBehaviorIndependence = p.roundingModeIndependence = independence;
    p.shaderDenormPreserveFloat16 = p.shaderRoundingModeRTEFloat16 = of_16;
    p.shaderDenormPreserveFloat32 = p.shaderRoundingModeRTEFloat32 = of_32;
    p.shaderSignedZeroInfNanPreserveFloat32 = VK_TRUE;
    return float_modes(p);
  };
  using Modes = std::vector<FloatMode>;
  const FloatMode denormals_16{4464, 4459, 16}, denormals_32{4464, 4459, 32};
  const FloatMode to_even_16{4467, 4462, 16}, to_even_32{4467, 4462, 32}, special{4466, 4461, 32};
  constexpr auto none = VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
  for (const auto any : {VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL,
                         VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY}) {
    CHECK(modes(any, true, true) == Modes{denormals_16, special, to_even_16, to_even_32});
    CHECK(modes(any, true, false) == Modes{denormals_16, special, to_even_16});
    CHECK(modes(any, false, true) == Modes{special, to_even_32});
  }
  CHECK(modes(none, true, true) ==
        Modes{denormals_16, denormals_32, special, to_even_16, to_even_32});
  CHECK(modes(none, true, false) == Modes{special});
  CHECK(modes(none, false, true) == Modes{special});
}

TEST_SUITE_END();

}  // namespace rw::vulkan
