// Reads /proc and /sys. What does not exist, or may not be read, is empty: processes and devices
// come and go, and others' may not be looked at.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

std::string_view trim(std::string_view text);  // without spaces and line ends around it

// Reading a file of a process that ends fails half way: what came before counts.
std::string read_text(const std::filesystem::path& path);
// The number at the beginning of a file.
std::optional<double> read_number(const std::filesystem::path& path);
// The entries of a folder in the order of names, so that it does not change which of several
// counts.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder);

}  // namespace rw
