// Whole files in and out. All errors are FileError and name the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace rw {

// The bytes of a file; a gzip file is decompressed.
std::vector<uint8_t> read_file(const std::filesystem::path& path);

// Through AtomicFile (io/file.h): readers see the old file or all of the new one. Makes the folders
// it needs.
void write_file(const std::filesystem::path& path, std::span<const uint8_t> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

// $REWIND_CACHE, else $XDG_CACHE_HOME/rewind, else ~/.cache/rewind, else rewind-cache in the
// system's temporary folder.
std::filesystem::path cache_directory();

}  // namespace rw
