// A table by texts, which is asked with views of them: no string is made.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace rw::vulkan {

struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
template <class T>
using ByText = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

}  // namespace rw::vulkan
