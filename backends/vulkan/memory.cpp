#include "rewind/backends/vulkan/memory.h"

#include <algorithm>

#include "rewind/backends/vulkan/shader_table.h"

namespace rw::vulkan {

namespace {

constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kHost =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

// Wanted property flags, best first.
std::vector<VkMemoryPropertyFlags> preferences(MemoryUse use, bool unified) {
  switch (use) {
    case MemoryUse::upload:
      return {kHost | kLocal, kHost};
    case MemoryUse::download:
      return {kHost | kCached, kHost};
    default:
      break;
  }
  if (unified) return {kLocal | kHost | kCached, kLocal | kHost, kLocal};
  return {kLocal};
}

// The first memory type with the wanted flags. Drivers list types with fewer flags first, so plain
// device memory comes before memory that the host can also map.
uint32_t memory_type(const Device& device, uint32_t allowed, MemoryUse use,
                     VkMemoryPropertyFlags& flags) {
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(device.physical(), &memory);
  for (VkMemoryPropertyFlags wanted : preferences(use, device.caps().unified_memory))
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      flags = memory.memoryTypes[i].propertyFlags;
      if ((allowed >> i & 1) && (flags & wanted) == wanted) return i;
    }
  fail<DeviceError>("vulkan", "the device has no suitable memory type");
}

// " (heap 8.0 GiB, 1.2 GiB in use by this process, budget 6.5 GiB)"
std::string heap_report(const Device& device) {
  const double gib = 1 << 30;
  const HeapUsage heap = query_heaps(device.physical(), device.caps())[device.caps().heap];
  std::string text = fmt::format(" (heap {:.2f} GiB", heap.size / gib);
  if (heap.budget)
    text += fmt::format(", {:.2f} GiB in use by this process, budget {:.2f} GiB", heap.usage / gib,
                        heap.budget / gib);
  return text + ")";
}

void allocate_memory(const Device& device, Buffer& buffer, MemoryUse use) {
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device.handle(), buffer.handle, &needs);
  VkMemoryAllocateFlagsInfo address{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
  address.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  if (device.caps().features & feature::address) info.pNext = &address;
  info.allocationSize = needs.size;
  VkMemoryPropertyFlags flags = 0;
  info.memoryTypeIndex = memory_type(device, needs.memoryTypeBits, use, flags);

  VkResult result = vkAllocateMemory(device.handle(), &info, nullptr, &buffer.memory);
  check<OutOfMemory>(result == VK_SUCCESS, "vulkan",
                     "the device must have {} bytes free, got {}{}; use a smaller batch, "
                     "checkpoint segments or a memory budget",
                     buffer.size, result_name(result), heap_report(device));
  vk_check(vkBindBufferMemory(device.handle(), buffer.handle, buffer.memory, 0),
           "vkBindBufferMemory");
  const bool map = use != MemoryUse::device || device.caps().unified_memory;
  if (map && (flags & kHost) == kHost) {
    void* pointer = nullptr;
    vk_check(vkMapMemory(device.handle(), buffer.memory, 0, VK_WHOLE_SIZE, 0, &pointer),
             "vkMapMemory");
    // Some drivers say so when the process has no more address space (ulimit -v).
    check<OutOfMemory>(pointer != nullptr, "vulkan",
                       "{} bytes must be mapped, the driver gave none{}", buffer.size,
                       heap_report(device));
    buffer.mapped = static_cast<std::byte*>(pointer);
  }
}

}  // namespace

std::vector<HeapUsage> query_heaps(VkPhysicalDevice device, const Caps& caps) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 properties{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  if (caps.memory_budget) properties.pNext = &budget;
  vkGetPhysicalDeviceMemoryProperties2(device, &properties);
  const VkPhysicalDeviceMemoryProperties& memory = properties.memoryProperties;
  std::vector<HeapUsage> heaps(memory.memoryHeapCount);
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryHeaps[i];
    const bool local = heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
    heaps[i] = {heap.size, budget.heapBudget[i], budget.heapUsage[i], local};
  }
  return heaps;
}

Buffer create_buffer(const Device& device, uint64_t bytes, MemoryUse use, const std::string& name) {
  const bool has_address = device.caps().features & feature::address;
  Buffer buffer;
  buffer.size = bytes;
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  if (has_address) info.usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  VkResult result = vkCreateBuffer(device.handle(), &info, nullptr, &buffer.handle);
  check<OutOfMemory>(result == VK_SUCCESS, "vulkan",
                     "a buffer of {} bytes must be possible, got {}", bytes, result_name(result));
  try {
    allocate_memory(device, buffer, use);
  } catch (...) {
    destroy_buffer(device, buffer);
    throw;
  }
  if (has_address) {
    VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
    address.buffer = buffer.handle;
    buffer.address = vkGetBufferDeviceAddress(device.handle(), &address);
  }
  device.set_name(VK_OBJECT_TYPE_BUFFER, reinterpret_cast<uint64_t>(buffer.handle), name);
  return buffer;
}

void destroy_buffer(const Device& device, Buffer& buffer) {
  vkDestroyBuffer(device.handle(), buffer.handle, nullptr);
  vkFreeMemory(device.handle(), buffer.memory, nullptr);
  buffer = {};
}

Blocks::~Blocks() {
  for (Buffer& b : blocks_) destroy_buffer(device_, b);
}

uint32_t Blocks::allocate(uint64_t bytes) {
  const uint64_t limit = device_.caps().max_block;
  check<ValueError>(bytes > 0 && bytes <= limit, "vulkan",
                    "a block must have 1 to {} bytes, got {}", limit, bytes);
  auto it = std::find_if(blocks_.begin(), blocks_.end(), [](auto& b) { return !b.handle; });
  const auto number = static_cast<uint32_t>(it - blocks_.begin());
  // Kernels read in words of 16 bytes.
  Buffer buffer = create_buffer(device_, round_up(bytes, 16), MemoryUse::device,
                                fmt::format("block {}", number));
  if (it == blocks_.end()) blocks_.emplace_back();
  blocks_[number] = buffer;
  return number;
}

void Blocks::free(uint32_t block) {
  destroy_buffer(device_, at(block));
}

Buffer& Blocks::at(const BufferRange& r) {
  check<ValueError>(r.block < blocks_.size() && blocks_[r.block].handle, "vulkan",
                    "block {} must be allocated", r.block);
  Buffer& buffer = blocks_[r.block];
  check<ValueError>(r.offset <= buffer.size && r.size <= buffer.size - r.offset, "vulkan",
                    "bytes {} to {} must lie in block {} of {} bytes", r.offset, r.offset + r.size,
                    r.block, buffer.size);
  return buffer;
}

}  // namespace rw::vulkan
