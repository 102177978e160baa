// Device memory in blocks of one buffer each. The arena (core/arena/arena.h) decides what lies
// where inside a block.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../../../core/backend/backend.h"
#include "../device/choices.h"
#include "../device/device.h"

namespace rw::vulkan {

// One VkBuffer with its own memory.
struct Buffer {
  VkBuffer handle = nullptr;
  VkDeviceMemory memory = nullptr;
  uint64_t size = 0;
  VkDeviceAddress address = 0;  // 0 if the device has no buffer addresses
  std::byte* mapped = nullptr;  // null: not visible to the host
  bool host_cached = false;     // without it, reads by the host take a hundred times as long
  uint64_t last_use = 0;        // timeline value of the last submit that touches it
  std::map<std::pair<uint64_t, uint64_t>, VkBufferView> texels;  // of uvec4, by offset and bytes
};

// All heaps of a device, with budgets if it has VK_EXT_memory_budget.
std::vector<HeapUsage> query_heaps(VkPhysicalDevice device, const Caps& caps);

// Allocates in the best memory that has room, also by the driver's budget. Throws OutOfMemory with
// the request and the memory that the device has.
Buffer create_buffer(const Device& device, uint64_t bytes, MemoryUse use, const std::string& name);
void destroy_buffer(const Device& device, Buffer& buffer);
// Returns the texels of a range of a buffer. They live until they are forgotten, with the buffer or
// before.
VkBufferView texels_of(const Device& device, Buffer& buffer, uint64_t offset, uint64_t bytes);
void forget_texels(const Device& device, Buffer& buffer);

class Blocks {
 public:
  explicit Blocks(const Device& device) : device_(device) {}
  ~Blocks();
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  uint32_t allocate(uint64_t bytes, MemoryUse use);  // device or host
  void free(uint32_t block);
  // Returns the buffer that holds `range`; throws ValueError if there is no such block or bytes.
  Buffer& at(const BufferRange& range);
  Buffer& at(uint32_t block) { return at({block, 0, 0}); }

 private:
  const Device& device_;
  std::vector<Buffer> blocks_;  // a null handle: the number is free
};

}  // namespace rw::vulkan
