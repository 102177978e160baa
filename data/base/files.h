// Reads and writes whole files. All errors are FileError and name the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// The bytes of a file; a gzip file is decompressed. More than `most` bytes are an error before they
// are in memory, and so is a gzip file that holds more than 64 MiB and 64 times its own size: no
// data set does, but small files can be made that would fill any memory.
std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t most = UINT64_MAX);

// The text of such a file, which is UTF-8, without a byte-order mark. Anything else is an error
// with the command that converts it: UTF-16 and UTF-32 by their marks or zeros, bytes that are not
// UTF-8 with their line and place.
std::string read_text(const std::filesystem::path& path, uint64_t most = UINT64_MAX);

// False also for what cannot be looked at.
bool is_folder(const std::filesystem::path& path);

// A hash of the bytes of a file, as they are.
uint64_t file_hash(const std::filesystem::path& path);

// Writes through AtomicFile (core/files/file.h): readers see the old file or all of the new one. It
// makes the folders that it needs.
void write_file(const std::filesystem::path& path, std::span<const uint8_t> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

// The folder for everything that can be made again, created if it is missing: $REWIND_CACHE, else
// $XDG_CACHE_HOME/rewind, else $HOME/.cache/rewind. It must belong to this user, and nobody else
// may write to it.
std::filesystem::path cache_directory();
// The folder for synthetic data that a program makes for itself: the same, or where that cannot be
// used, a folder for temporary files, which goes when the program ends. A warning says so.
std::filesystem::path synthetic_data_directory();

}  // namespace rw
