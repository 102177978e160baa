// What /proc and /sys say. What is not there, or may not be read, is empty: processes and devices
// come and go, and others' may not be looked at.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

std::string_view trim(std::string_view text);  // without spaces and line ends around it

// A file of a process that ends fails in the midst of reading: what came before counts.
std::string read_text(const std::filesystem::path& path);
// The number that a file begins with.
std::optional<double> read_number(const std::filesystem::path& path);
// What is in a folder, in the order of names, so that which of several counts does not change.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder);

}  // namespace rw
