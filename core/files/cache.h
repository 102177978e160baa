// A cache: data that can be made again is kept in one folder, and small files of it may vanish or
// break at any time.
//
// Its contents are trusted: drivers run compiled code that they find there. So the folder is used
// only if it belongs to the user alone: a folder of the user as whom this process runs, to which
// nobody else can write and to which no other user's link leads. No links are followed in it. If
// there is no such folder, nothing is kept, which is said once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// Returns $REWIND_CACHE, else $XDG_CACHE_HOME/rewind, else $HOME/.cache/rewind; empty if none is
// set. The latter two count only as absolute paths, as the XDG specification demands: a user who
// calls a program in some folder does not mean that folder's contents to be its cache.
std::filesystem::path user_cache_directory();
// Returns the same folder, and creates it if it is missing. FileError if there is none, or if it is
// not as described above.
std::filesystem::path make_cache_directory();

// Returns the bytes that write_cache() wrote, or nothing if they are not available in full.
std::vector<std::byte> read_cache(const std::string& file);
// Replaces the file atomically; does nothing if there is no folder or it cannot be written.
void write_cache(const std::string& file, std::span<const std::byte> contents);

// Reads and writes a text that people may read, of at most 1 MiB, without a checksum. Nothing if it
// does not exist, and false if it was not written.
std::optional<std::string> read_cache_text(const std::string& file);
bool write_cache_text(const std::string& file, std::string_view text);

// Returns false if there was none. FileError if it exists and stays.
bool remove_cache(const std::string& file);

}  // namespace rw
