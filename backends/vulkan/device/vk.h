// vulkan.h, and the definitions that every file here needs with it.
#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../../../core/base/environment.h"
#include "../../../core/base/error.h"

// Structs start as {sType} or {sType, pNext}; the rest is zero, which is intended.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace rw::vulkan {

std::string result_name(VkResult result);  // "VK_ERROR_DEVICE_LOST"

// Throws a DeviceError with the call unless it succeeded.
inline void vk_check(VkResult result, const char* call) {
  check<DeviceError>(result == VK_SUCCESS, "vulkan", "{} failed: {}", call, result_name(result));
}

// The list that a function of Vulkan returns: `ask(&count, nullptr)` gives its length, and
// `ask(&count, data)` its elements. `blank` is their initial value.
template <class T, class F>
std::vector<T> list(F&& ask, const T& blank = {}) {
  uint32_t count = 0;
  ask(&count, nullptr);
  std::vector<T> all(count, blank);
  ask(&count, all.data());
  return all;
}

bool has_extension(VkPhysicalDevice device, const char* name);

constexpr uint64_t round_up(uint64_t x, uint64_t to) {
  return (x + to - 1) / to * to;
}

}  // namespace rw::vulkan
