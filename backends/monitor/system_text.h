// Reads /proc and /sys. A file that does not exist, or may not be read, is empty: processes and
// devices come and go, and those of others are private.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

std::string_view trim(std::string_view text);  // strips spaces and line ends around it

// Returns a file's text. Reading a file of a process that ends fails half way; the part before that
// counts.
std::string read_text(const std::filesystem::path& path);
// Returns the number at the beginning of a file.
std::optional<double> read_number(const std::filesystem::path& path);
// Returns the entries of a folder, sorted by name, so that the one that counts among several stays
// the same.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder);

}  // namespace rw
