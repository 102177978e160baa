// Small files under $XDG_CACHE_HOME/rewind (or ~/.cache/rewind) that may vanish at any time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace rw::vulkan {

// Contents, or empty when there is no such file.
std::vector<std::byte> read_cache(const std::string& file);
// Replaces it atomically; does nothing when the directory cannot be written.
void write_cache(const std::string& file, std::span<const std::byte> contents);

}  // namespace rw::vulkan
