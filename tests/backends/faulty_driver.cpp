#include "tests/backends/faulty_driver.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>

#include "backends/vulkan/device/vk.h"

namespace rw::test {

namespace {

DriverFaults now;
bool is_lost = false;
// The last command shows the host what earlier ones have written.
bool is_shown = false;
std::map<VkDeviceMemory, VkDeviceSize> allocation_sizes;  // of allocations

// The pipelines of caches, by number, if a driver keeps them: its header, the numbers, and their
// count.
std::map<VkPipelineCache, std::set<uint32_t>> pipelines;
std::mutex pipelines_mutex;
uint32_t last_pipeline = 0;
uint32_t mapped_type = 0;  // the driver's memory type that the host can map

std::set<uint32_t> pipelines_of(const void* data, size_t bytes) {
  std::vector<uint32_t> words(bytes / 4);
  std::memcpy(words.data(), data, 4 * words.size());
  const auto count = static_cast<std::ptrdiff_t>(words.back());
  return {words.end() - 1 - count, words.end() - 1};
}

template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

// Tells whether this call loses the device.
bool loses(const char* function) {
  if (now.lost_at < 0) return false;
  if (now.lost_in == function && now.calls++ == now.lost_at) is_lost = true;
  return is_lost;
}

// A lost device no longer touches its memory, so this one must end its work first.
template <class Wait, class Handle>
VkResult lose(Wait wait, Handle handle) {
  wait(handle);
  return VK_ERROR_DEVICE_LOST;
}

void show_types(VkPhysicalDeviceMemoryProperties& memory) {
  if (now.types.empty()) return;
  constexpr VkMemoryPropertyFlags mapped =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  mapped_type = 0;
  while ((memory.memoryTypes[mapped_type].propertyFlags & mapped) != mapped) ++mapped_type;
  memory = {};
  for (const auto& [flags, heap] : now.types)
    memory.memoryTypes[memory.memoryTypeCount++] = {flags, heap};
  for (const uint64_t bytes : now.heaps)
    memory.memoryHeaps[memory.memoryHeapCount++] = {bytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
}

}  // namespace

FaultyDriver::FaultyDriver(DriverFaults faults) {
  now = std::move(faults);
  is_lost = false;
}
FaultyDriver::~FaultyDriver() {
  now = {};
}
DriverFaults& FaultyDriver::faults() {
  return now;
}

}  // namespace rw::test

using namespace rw::test;

#define REAL(function) static const auto driver = real<PFN_##function>(#function)

extern "C" {

VKAPI_ATTR VkResult VKAPI_CALL vkMapMemory(VkDevice device, VkDeviceMemory memory,
                                           VkDeviceSize offset, VkDeviceSize size,
                                           VkMemoryMapFlags flags, void** data) {
  REAL(vkMapMemory);
  if (!now.maps_nothing) return driver(device, memory, offset, size, flags, data);
  *data = nullptr;
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL vkEnumerateDeviceExtensionProperties(VkPhysicalDevice physical,
                                                                    const char* layer,
                                                                    uint32_t* count,
                                                                    VkExtensionProperties* all) {
  REAL(vkEnumerateDeviceExtensionProperties);
  const uint32_t room = *count, extra = now.budget ? 1 : 0;
  const VkResult result = driver(physical, layer, count, all);
  if (all && extra && *count < room)
    std::strcpy(all[*count].extensionName, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  *count += extra;
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL vkCreateDevice(VkPhysicalDevice physical,
                                              const VkDeviceCreateInfo* info,
                                              const VkAllocationCallbacks* allocator,
                                              VkDevice* device) {
  REAL(vkCreateDevice);
  if (loses("vkCreateDevice")) return VK_ERROR_DEVICE_LOST;
  VkDeviceCreateInfo asked = *info;
  std::vector<const char*> names(asked.ppEnabledExtensionNames,
                                 asked.ppEnabledExtensionNames + asked.enabledExtensionCount);
  if (now.budget)
    std::erase_if(names, [](const char* name) {
      return !std::strcmp(name, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    });
  asked.enabledExtensionCount = static_cast<uint32_t>(names.size());
  asked.ppEnabledExtensionNames = names.data();
  return driver(physical, &asked, allocator, device);
}

VKAPI_ATTR VkResult VKAPI_CALL vkQueueSubmit(VkQueue queue, uint32_t count,
                                             const VkSubmitInfo* submits, VkFence fence) {
  REAL(vkQueueSubmit);
  if (loses("vkQueueSubmit")) return lose(real<PFN_vkQueueWaitIdle>("vkQueueWaitIdle"), queue);
  ++now.submits;
  now.hidden_submits += !is_shown;
  return driver(queue, count, submits, fence);
}

VKAPI_ATTR void VKAPI_CALL vkCmdDispatch(VkCommandBuffer commands, uint32_t x, uint32_t y,
                                         uint32_t z) {
  REAL(vkCmdDispatch);
  is_shown = false;
  driver(commands, x, y, z);
}

VKAPI_ATTR void VKAPI_CALL vkCmdCopyBuffer(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                                           uint32_t count, const VkBufferCopy* regions) {
  REAL(vkCmdCopyBuffer);
  is_shown = false;
  driver(commands, from, to, count, regions);
}

VKAPI_ATTR void VKAPI_CALL vkCmdPipelineBarrier(VkCommandBuffer commands, VkPipelineStageFlags from,
                                                VkPipelineStageFlags to, VkDependencyFlags flags,
                                                uint32_t count, const VkMemoryBarrier* barriers,
                                                uint32_t buffer_count,
                                                const VkBufferMemoryBarrier* buffers,
                                                uint32_t image_count,
                                                const VkImageMemoryBarrier* images) {
  REAL(vkCmdPipelineBarrier);
  constexpr VkAccessFlags writes = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  if (to & VK_PIPELINE_STAGE_HOST_BIT)
    is_shown = count == 1 && (barriers->srcAccessMask & writes) == writes &&
               barriers->dstAccessMask & VK_ACCESS_HOST_READ_BIT;
  driver(commands, from, to, flags, count, barriers, buffer_count, buffers, image_count, images);
}

VKAPI_ATTR VkResult VKAPI_CALL vkWaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo* info,
                                                uint64_t timeout) {
  REAL(vkWaitSemaphores);
  if (loses("vkWaitSemaphores"))
    return lose(real<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle"), device);
  if (now.hangs) return VK_TIMEOUT;
  return driver(device, info, timeout);
}

VKAPI_ATTR VkResult VKAPI_CALL vkGetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore,
                                                          uint64_t* value) {
  REAL(vkGetSemaphoreCounterValue);
  if (loses("vkGetSemaphoreCounterValue"))
    return lose(real<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle"), device);
  return driver(device, semaphore, value);
}

VKAPI_ATTR VkResult VKAPI_CALL vkGetQueryPoolResults(VkDevice device, VkQueryPool pool,
                                                     uint32_t first, uint32_t count, size_t bytes,
                                                     void* data, VkDeviceSize stride,
                                                     VkQueryResultFlags flags) {
  REAL(vkGetQueryPoolResults);
  if (loses("vkGetQueryPoolResults"))
    return lose(real<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle"), device);
  return driver(device, pool, first, count, bytes, data, stride, flags);
}

VKAPI_ATTR VkResult VKAPI_CALL vkDeviceWaitIdle(VkDevice device) {
  REAL(vkDeviceWaitIdle);
  const VkResult result = driver(device);  // the real device has work, which must end
  return is_lost ? VK_ERROR_DEVICE_LOST : result;
}

VKAPI_ATTR void VKAPI_CALL vkGetPhysicalDeviceMemoryProperties(
    VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties* memory) {
  REAL(vkGetPhysicalDeviceMemoryProperties);
  driver(physical, memory);
  show_types(*memory);
}

VKAPI_ATTR void VKAPI_CALL vkGetPhysicalDeviceMemoryProperties2(
    VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2* memory) {
  REAL(vkGetPhysicalDeviceMemoryProperties2);
  const auto next = static_cast<VkBaseOutStructure*>(memory->pNext);
  if (now.budget) memory->pNext = nullptr;  // the driver may not know the structure
  driver(physical, memory);
  memory->pNext = next;
  show_types(memory->memoryProperties);
  if (!now.budget || !next ||
      next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
    return;
  auto& budget = reinterpret_cast<VkPhysicalDeviceMemoryBudgetPropertiesEXT&>(*next);
  for (uint32_t i = 0; i < memory->memoryProperties.memoryHeapCount; ++i) {
    budget.heapBudget[i] = now.budget;
    budget.heapUsage[i] = now.usage;
  }
}

VKAPI_ATTR void VKAPI_CALL vkGetBufferMemoryRequirements(VkDevice device, VkBuffer buffer,
                                                         VkMemoryRequirements* needs) {
  REAL(vkGetBufferMemoryRequirements);
  driver(device, buffer, needs);
  if (!now.types.empty()) needs->memoryTypeBits = (1u << now.types.size()) - 1;
}

VKAPI_ATTR VkResult VKAPI_CALL vkCreateDescriptorPool(VkDevice device,
                                                      const VkDescriptorPoolCreateInfo* info,
                                                      const VkAllocationCallbacks* allocator,
                                                      VkDescriptorPool* pool) {
  REAL(vkCreateDescriptorPool);
  ++now.descriptor_pools;
  return driver(device, info, allocator, pool);
}

VKAPI_ATTR void VKAPI_CALL vkDestroyDescriptorPool(VkDevice device, VkDescriptorPool pool,
                                                   const VkAllocationCallbacks* allocator) {
  REAL(vkDestroyDescriptorPool);
  --now.descriptor_pools;
  driver(device, pool, allocator);
}

VKAPI_ATTR VkResult VKAPI_CALL vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo* info,
                                                const VkAllocationCallbacks* allocator,
                                                VkDeviceMemory* memory) {
  REAL(vkAllocateMemory);
  VkMemoryAllocateInfo asked = *info;
  if (!now.types.empty()) {
    const auto& [flags, heap] = now.types[info->memoryTypeIndex];
    if (heap < now.full.size() && now.full[heap]) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    asked.memoryTypeIndex = mapped_type;
  }
  const VkResult result = driver(device, &asked, allocator, memory);
  if (result == VK_SUCCESS) {
    now.usage += allocation_sizes[*memory] = info->allocationSize;
    now.allocated.push_back(info->memoryTypeIndex);
  }
  return result;
}

VKAPI_ATTR void VKAPI_CALL vkFreeMemory(VkDevice device, VkDeviceMemory memory,
                                        const VkAllocationCallbacks* allocator) {
  REAL(vkFreeMemory);
  ++now.frees;
  driver(device, memory, allocator);
  if (const auto it = allocation_sizes.find(memory); it != allocation_sizes.end()) {
    now.usage -= std::min<uint64_t>(now.usage, it->second);
    allocation_sizes.erase(it);
  }
}

VKAPI_ATTR VkResult VKAPI_CALL vkCreatePipelineCache(VkDevice device,
                                                     const VkPipelineCacheCreateInfo* info,
                                                     const VkAllocationCallbacks* callbacks,
                                                     VkPipelineCache* cache) {
  REAL(vkCreatePipelineCache);
  if (!now.keeps_pipelines) return driver(device, info, callbacks, cache);
  VkPipelineCacheCreateInfo own = *info;
  std::set<uint32_t> numbers;
  if (own.initialDataSize) numbers = pipelines_of(own.pInitialData, own.initialDataSize);
  own.initialDataSize = 0;
  const VkResult result = driver(device, &own, callbacks, cache);
  const std::lock_guard lock(pipelines_mutex);
  pipelines[*cache] = std::move(numbers);
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL vkGetPipelineCacheData(VkDevice device, VkPipelineCache cache,
                                                      size_t* bytes, void* data) {
  REAL(vkGetPipelineCacheData);
  if (!now.keeps_pipelines) return driver(device, cache, bytes, data);
  const std::lock_guard lock(pipelines_mutex);
  const std::set<uint32_t>& numbers = pipelines[cache];
  constexpr size_t header = sizeof(VkPipelineCacheHeaderVersionOne);
  *bytes = header + 4 * (numbers.size() + 1);
  if (!data) return VK_SUCCESS;
  size_t all = 0;
  driver(device, cache, &all, nullptr);
  std::vector<std::byte> own(std::max(all, header));
  driver(device, cache, &all, own.data());
  std::memcpy(data, own.data(), header);
  std::vector<uint32_t> words(numbers.begin(), numbers.end());
  words.push_back(static_cast<uint32_t>(numbers.size()));
  std::memcpy(static_cast<std::byte*>(data) + header, words.data(), 4 * words.size());
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL vkMergePipelineCaches(VkDevice device, VkPipelineCache to,
                                                     uint32_t count, const VkPipelineCache* from) {
  REAL(vkMergePipelineCaches);
  const std::lock_guard lock(pipelines_mutex);
  for (uint32_t i = 0; now.keeps_pipelines && i < count; ++i)
    pipelines[to].insert(pipelines[from[i]].begin(), pipelines[from[i]].end());
  return driver(device, to, count, from);
}

VKAPI_ATTR VkResult VKAPI_CALL vkCreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                                        uint32_t count,
                                                        const VkComputePipelineCreateInfo* infos,
                                                        const VkAllocationCallbacks* callbacks,
                                                        VkPipeline* made) {
  REAL(vkCreateComputePipelines);
  if (now.keeps_pipelines && cache) {
    const std::lock_guard lock(pipelines_mutex);
    pipelines[cache].insert(++last_pipeline);
  }
  return driver(device, cache, count, infos, callbacks, made);
}

}  // extern "C"

#undef REAL
