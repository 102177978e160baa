// Small files in core/base/cache_directory.h's folder that may vanish or break at any time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// What write_cache wrote, or empty where that is not to be had whole.
std::vector<std::byte> read_cache(const std::string& file);
// Replaces it atomically; does nothing where there is no folder or it cannot be written.
void write_cache(const std::string& file, std::span<const std::byte> contents);

// The same for a text that people may read, without a checksum: false where it was not written.
bool write_cache_text(const std::string& file, std::string_view text);

}  // namespace rw
