// Times kernels of a matrix product that products.py compiles, and compares some of their results
// with sums on the host:
//   products LIST < names; a line of LIST is  NAME FILE.spv TILE_M TILE_N M N K A_ALONG_K B_ALONG_K
//   CHECKED
// Factors are f16 between -1 and 1, results f32. It uses Vulkan and nothing of Rewind, so it is
// easily carried to a GPU. PROBE_GRAPHICS=1 takes the queue of graphics in place of one that only
// computes.
#include <vulkan/vulkan.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void must(VkResult result, const char* what) {
  if (result != VK_SUCCESS)
    throw std::runtime_error(std::string(what) + " failed: " + std::to_string(result));
}

struct Buffer {
  VkBuffer handle = nullptr;
  VkDeviceAddress address = 0;
  void* mapped = nullptr;
};

struct Kernel {
  std::string name, file;
  uint32_t tile_m, tile_n, m, n, k;
  bool a_along_k, b_along_k, is_checked;
};

// The kernels take this as push constants.
struct Push {
  uint32_t m, n, k, unused;
  VkDeviceAddress a, b, c;
};

class Gpu {
 public:
  Gpu() {
    const VkApplicationInfo app{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                    .pApplicationInfo = &app};
    must(vkCreateInstance(&info, nullptr, &instance_), "vkCreateInstance");
    uint32_t count = 8;
    VkPhysicalDevice all[8];
    must(vkEnumeratePhysicalDevices(instance_, &count, all), "vkEnumeratePhysicalDevices");
    physical_ = all[0];
    for (uint32_t i = 0; i < count; ++i) {
      vkGetPhysicalDeviceProperties(all[i], &properties_);
      if (properties_.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU) physical_ = all[i];
    }
    vkGetPhysicalDeviceProperties(physical_, &properties_);
    vkGetPhysicalDeviceMemoryProperties(physical_, &memory_);
    open();
  }

  const char* name() const { return properties_.deviceName; }

  Buffer buffer(VkDeviceSize bytes, bool on_host) {
    Buffer made;
    const VkBufferCreateInfo info{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                  .size = bytes,
                                  .usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                           VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                           VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    must(vkCreateBuffer(device_, &info, nullptr, &made.handle), "vkCreateBuffer");
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device_, made.handle, &needs);
    const VkMemoryAllocateFlagsInfo flags{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                          .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryPropertyFlags kind =
        on_host ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    uint32_t type = 0;
    while (!(needs.memoryTypeBits >> type & 1) ||
           (memory_.memoryTypes[type].propertyFlags & kind) != kind)
      ++type;
    const VkMemoryAllocateInfo allocation{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                          .pNext = &flags,
                                          .allocationSize = needs.size,
                                          .memoryTypeIndex = type};
    VkDeviceMemory memory = nullptr;
    must(vkAllocateMemory(device_, &allocation, nullptr, &memory), "vkAllocateMemory");
    must(vkBindBufferMemory(device_, made.handle, memory, 0), "vkBindBufferMemory");
    if (on_host) must(vkMapMemory(device_, memory, 0, bytes, 0, &made.mapped), "vkMapMemory");
    const VkBufferDeviceAddressInfo at{.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                       .buffer = made.handle};
    made.address = vkGetBufferDeviceAddress(device_, &at);
    return made;
  }

  void copy(const Buffer& from, const Buffer& to, VkDeviceSize bytes) {
    run([&](VkCommandBuffer commands) {
      const VkBufferCopy region{0, 0, bytes};
      vkCmdCopyBuffer(commands, from.handle, to.handle, 1, &region);
    });
  }

  VkPipeline pipeline(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    const std::vector<char> code((std::istreambuf_iterator<char>(in)), {});
    if (code.empty()) throw std::runtime_error("cannot read " + file);
    const VkShaderModuleCreateInfo module_info{
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = code.size(),
        .pCode = reinterpret_cast<const uint32_t*>(code.data())};
    VkShaderModule module = nullptr;
    must(vkCreateShaderModule(device_, &module_info, nullptr, &module), "vkCreateShaderModule");
    const VkComputePipelineCreateInfo info{
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main"},
        .layout = layout_};
    VkPipeline made = nullptr;
    must(vkCreateComputePipelines(device_, nullptr, 1, &info, nullptr, &made),
         "vkCreateComputePipelines");
    vkDestroyShaderModule(device_, module, nullptr);
    return made;
  }
  void destroy(VkPipeline pipeline) { vkDestroyPipeline(device_, pipeline, nullptr); }

  // Returns the milliseconds of a dispatch, the mean of `runs` that follow each other.
  double milliseconds(VkPipeline pipeline, const Push& push, uint32_t groups, int runs) {
    run([&](VkCommandBuffer commands) {
      vkCmdResetQueryPool(commands, queries_, 0, 2);
      vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
      vkCmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), &push);
      vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, queries_, 0);
      for (int i = 0; i < runs; ++i) {
        vkCmdDispatch(commands, groups, 1, 1);
        const VkMemoryBarrier barrier{
            .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
            .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
            .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
        vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                             VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, nullptr, 0,
                             nullptr);
      }
      vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, queries_, 1);
    });
    uint64_t at[2];
    must(vkGetQueryPoolResults(device_, queries_, 0, 2, sizeof(at), at, 8,
                               VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
         "vkGetQueryPoolResults");
    return static_cast<double>(at[1] - at[0]) * properties_.limits.timestampPeriod * 1e-6 / runs;
  }

 private:
  uint32_t queue_family() {
    uint32_t count = 16;
    VkQueueFamilyProperties families[16];
    vkGetPhysicalDeviceQueueFamilyProperties(physical_, &count, families);
    const bool wants_graphics = std::getenv("PROBE_GRAPHICS") != nullptr;
    for (uint32_t i = 0; i < count; ++i)
      if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT &&
          wants_graphics == ((families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0))
        return i;
    return 0;
  }

  // All features that the driver has, but for checks of bounds.
  void open() {
    uint32_t count = 0;
    vkEnumerateDeviceExtensionProperties(physical_, nullptr, &count, nullptr);
    std::vector<VkExtensionProperties> offered(count);
    vkEnumerateDeviceExtensionProperties(physical_, nullptr, &count, offered.data());
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV second{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceVulkan13Features f13{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .pNext = &matrix};
    VkPhysicalDeviceVulkan12Features f12{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &f13};
    VkPhysicalDeviceVulkan11Features f11{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12};
    VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                       .pNext = &f11};
    std::vector<const char*> names = {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME};
    for (const VkExtensionProperties& e : offered)
      if (std::string(e.extensionName) == VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME) {
        names.push_back(VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME);
        matrix.pNext = &second;
      }
    vkGetPhysicalDeviceFeatures2(physical_, &features);
    features.features.robustBufferAccess = VK_FALSE;
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                        .queueFamilyIndex = queue_family(),
                                        .queueCount = 1,
                                        .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                  .pNext = &features,
                                  .queueCreateInfoCount = 1,
                                  .pQueueCreateInfos = &queue,
                                  .enabledExtensionCount = static_cast<uint32_t>(names.size()),
                                  .ppEnabledExtensionNames = names.data()};
    must(vkCreateDevice(physical_, &info, nullptr, &device_), "vkCreateDevice");
    vkGetDeviceQueue(device_, queue.queueFamilyIndex, 0, &queue_);
    const VkCommandPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                       .queueFamilyIndex = queue.queueFamilyIndex};
    must(vkCreateCommandPool(device_, &pool, nullptr, &pool_), "vkCreateCommandPool");
    const VkQueryPoolCreateInfo queries{.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = 2};
    must(vkCreateQueryPool(device_, &queries, nullptr, &queries_), "vkCreateQueryPool");
    const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(Push)};
    const VkPipelineLayoutCreateInfo layout{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                            .pushConstantRangeCount = 1,
                                            .pPushConstantRanges = &range};
    must(vkCreatePipelineLayout(device_, &layout, nullptr, &layout_), "vkCreatePipelineLayout");
  }

  template <class Record>
  void run(Record&& record) {
    const VkCommandBufferAllocateInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                           .commandPool = pool_,
                                           .commandBufferCount = 1};
    VkCommandBuffer commands = nullptr;
    must(vkAllocateCommandBuffers(device_, &info, &commands), "vkAllocateCommandBuffers");
    const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    must(vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
    record(commands);
    must(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
    const VkSubmitInfo submit{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                              .commandBufferCount = 1,
                              .pCommandBuffers = &commands};
    must(vkQueueSubmit(queue_, 1, &submit, nullptr), "vkQueueSubmit");
    must(vkQueueWaitIdle(queue_), "vkQueueWaitIdle");
    vkFreeCommandBuffers(device_, pool_, 1, &commands);
  }

  VkInstance instance_ = nullptr;
  VkPhysicalDevice physical_ = nullptr;
  VkPhysicalDeviceProperties properties_{};
  VkPhysicalDeviceMemoryProperties memory_{};
  VkDevice device_ = nullptr;
  VkQueue queue_ = nullptr;
  VkCommandPool pool_ = nullptr;
  VkQueryPool queries_ = nullptr;
  VkPipelineLayout layout_ = nullptr;
};

// Multiples of 1/1024 between -1 and 1, which f16 holds exactly, and their bits.
float value_of(size_t seed, size_t i) {
  const size_t mixed = (i * 2 + seed) * 0x9e3779b97f4a7c15u;
  return static_cast<float>(static_cast<int>(mixed >> 53) - 1024) / 1024;
}
uint16_t half_of(float value) {
  const auto f16 = static_cast<_Float16>(value);
  uint16_t bits;
  std::copy_n(reinterpret_cast<const char*>(&f16), 2, reinterpret_cast<char*>(&bits));
  return bits;
}

class Probe {
 public:
  Probe(Gpu& gpu, size_t elements) : gpu_(gpu) {
    a_ = gpu.buffer(2 * elements, false);
    b_ = gpu.buffer(2 * elements, false);
    c_ = gpu.buffer(4 * elements, false);
    host_ = gpu.buffer(4 * elements, true);
    for (const size_t seed : {0, 1}) {
      for (size_t i = 0; i < elements; ++i)
        static_cast<uint16_t*>(host_.mapped)[i] = half_of(value_of(seed, i));
      gpu.copy(host_, seed ? b_ : a_, 2 * elements);
    }
  }

  void run(const Kernel& kernel) {
    const VkPipeline pipeline = gpu_.pipeline(kernel.file);
    const Push push{kernel.m, kernel.n, kernel.k, 0, a_.address, b_.address, c_.address};
    const uint32_t groups = kernel.m / kernel.tile_m * (kernel.n / kernel.tile_n);
    // A GPU that was idle has slow clocks: it is kept busy until two times agree.
    double once = gpu_.milliseconds(pipeline, push, groups, 1), before = 0;
    const auto runs = [&](double wanted) { return static_cast<int>(wanted / once) + 1; };
    for (int i = 0; i < 10 && std::abs(once - before) > 0.02 * once; ++i) {
      before = once;
      once = gpu_.milliseconds(pipeline, push, groups, runs(60));
    }
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(gpu_.milliseconds(pipeline, push, groups, runs(6)));
    std::sort(times.begin(), times.end());
    gpu_.destroy(pipeline);
    std::printf("%-32s %8.3f ms %7.1f TFLOP/s", kernel.name.c_str(), times[2],
                2e-9 * kernel.m * kernel.n * kernel.k / times[2]);
    if (kernel.is_checked) std::printf("  error %.2g", worst_error(kernel));
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  double worst_error(const Kernel& kernel) {
    gpu_.copy(c_, host_, 4 * size_t{kernel.m} * kernel.n);
    std::mt19937 random(7);
    double worst = 0;
    for (int i = 0; i < 200; ++i) {
      const size_t m = random() % kernel.m, n = random() % kernel.n;
      double sum = 0;
      for (size_t k = 0; k < kernel.k; ++k)
        sum += double{value_of(0, kernel.a_along_k ? m * kernel.k + k : k * kernel.m + m)} *
               value_of(1, kernel.b_along_k ? n * kernel.k + k : k * kernel.n + n);
      const double error =
          std::abs(static_cast<const float*>(host_.mapped)[m * kernel.n + n] - sum);
      worst = std::isnan(error) ? error : std::max(worst, error);
    }
    return worst;
  }

  Gpu& gpu_;
  Buffer a_, b_, c_, host_;
};

}  // namespace

int main(int count, char** arguments) try {
  std::ifstream list(count > 1 ? arguments[1] : "");
  std::vector<Kernel> kernels;
  Kernel k;
  while (list >> k.name >> k.file >> k.tile_m >> k.tile_n >> k.m >> k.n >> k.k >> k.a_along_k >>
         k.b_along_k >> k.is_checked)
    kernels.push_back(k);
  size_t elements = 0;
  for (const Kernel& each : kernels)
    elements = std::max(
        {elements, size_t{each.m} * each.k, size_t{each.k} * each.n, size_t{each.m} * each.n});
  if (!elements) throw std::runtime_error("the first argument must be a list of kernels");
  Gpu gpu;
  std::printf("%s\n", gpu.name());
  Probe probe(gpu, elements);
  for (const Kernel& each : kernels) probe.run(each);
} catch (const std::exception& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 1;
}
