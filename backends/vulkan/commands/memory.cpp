#include "backends/vulkan/commands/memory.h"

#include <algorithm>
#include <utility>

#include "backends/vulkan/device/shader_table.h"

namespace rw::vulkan {

namespace {

// "heap 8.00 GiB, 1.20 GiB in use by this process, budget 6.50 GiB"
std::string describe_memory(const HeapUsage& heap) {
  const double gib = 1 << 30;
  std::string text = fmt::format("heap {:.2f} GiB", heap.size / gib);
  if (heap.budget)
    text += fmt::format(", {:.2f} GiB in use by this process, budget {:.2f} GiB", heap.usage / gib,
                        heap.budget / gib);
  return text;
}

bool has_room(const HeapUsage& heap, uint64_t bytes) {
  return !heap.budget || (heap.usage < heap.budget && bytes <= heap.budget - heap.usage);
}

// Empty where it could not be had.
struct Memory {
  VkDeviceMemory handle = nullptr;
  std::byte* mapped = nullptr;
  std::string refusal;
};

Memory allocate_type(const Device& device, uint64_t bytes, uint32_t type, bool map) {
  VkMemoryAllocateFlagsInfo address{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
  address.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  if (device.caps().features & feature::address) info.pNext = &address;
  info.allocationSize = bytes;
  info.memoryTypeIndex = type;
  Memory memory;
  VkResult result = vkAllocateMemory(device.handle(), &info, nullptr, &memory.handle);
  if (result != VK_SUCCESS) return {.refusal = result_name(result)};
  if (!map) return memory;
  void* pointer = nullptr;
  result = vkMapMemory(device.handle(), memory.handle, 0, VK_WHOLE_SIZE, 0, &pointer);
  // Some drivers succeed but map nothing if the process has no more address space (ulimit -v).
  if (result == VK_SUCCESS && pointer) {
    memory.mapped = static_cast<std::byte*>(pointer);
    return memory;
  }
  vkFreeMemory(device.handle(), memory.handle, nullptr);
  return {.refusal = fmt::format("no mapping ({})", result_name(result))};
}

void allocate_memory(const Device& device, Buffer& buffer, MemoryUse use) {
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device.handle(), buffer.handle, &needs);
  const VkPhysicalDeviceMemoryProperties& memory = device.memory();
  const std::vector<HeapUsage> heaps = query_heaps(device.physical(), device.caps());
  const bool unified = device.caps().unified_memory, may_map = use != MemoryUse::device || unified;
  std::string refusals;
  for (const uint32_t type : memory_types(memory, needs.memoryTypeBits, use, unified)) {
    const VkMemoryType& kind = memory.memoryTypes[type];
    const HeapUsage& heap = heaps[kind.heapIndex];
    const bool map = may_map && (kind.propertyFlags & kHostMemory) == kHostMemory;
    Memory got{.refusal = "beyond the driver's budget, which REWIND_WITHOUT=memory-budget ignores"};
    if (has_room(heap, needs.size)) got = allocate_type(device, needs.size, type, map);
    if (got.handle) {
      buffer.memory = got.handle;
      buffer.mapped = got.mapped;
      buffer.host_cached = kind.propertyFlags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
      return vk_check(vkBindBufferMemory(device.handle(), buffer.handle, buffer.memory, 0),
                      "vkBindBufferMemory");
    }
    refusals +=
        fmt::format("\n  {} of memory type {} ({})", got.refusal, type, describe_memory(heap));
  }
  fail<OutOfMemory>("vulkan", "the device must have room for {} bytes, got:{}", buffer.size,
                    refusals);
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
  if (device.caps().features & feature::texels)
    info.usage |= VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT;
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

VkBufferView texels_of(const Device& device, Buffer& buffer, uint64_t offset, uint64_t bytes) {
  VkBufferView& view = buffer.texels[{offset, bytes}];
  if (view) return view;
  VkBufferViewCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO};
  info.buffer = buffer.handle;
  info.format = VK_FORMAT_R32G32B32A32_UINT;
  info.offset = offset;
  info.range = bytes;
  vk_check(vkCreateBufferView(device.handle(), &info, nullptr, &view), "vkCreateBufferView");
  return view;
}

void forget_texels(const Device& device, Buffer& buffer) {
  for (const auto& [range, view] : buffer.texels)
    vkDestroyBufferView(device.handle(), view, nullptr);
  buffer.texels.clear();
}

void destroy_buffer(const Device& device, Buffer& buffer) {
  forget_texels(device, buffer);
  vkDestroyBuffer(device.handle(), buffer.handle, nullptr);
  vkFreeMemory(device.handle(), buffer.memory, nullptr);
  buffer = {};
}

Blocks::~Blocks() {
  for (Buffer& b : blocks_) destroy_buffer(device_, b);
}

uint32_t Blocks::allocate(uint64_t bytes, MemoryUse use) {
  const uint64_t limit = device_.caps().max_block;
  check<ValueError>(bytes > 0 && bytes <= limit, "vulkan",
                    "a block must have 1 to {} bytes, got {}", limit, bytes);
  auto it = std::find_if(blocks_.begin(), blocks_.end(), [](auto& b) { return !b.handle; });
  const auto number = static_cast<uint32_t>(it - blocks_.begin());
  // Kernels read in words of 16 bytes.
  Buffer buffer = create_buffer(device_, round_up(bytes, 16), use, fmt::format("block {}", number));
  if (it == blocks_.end()) blocks_.emplace_back();
  blocks_[number] = std::move(buffer);
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
