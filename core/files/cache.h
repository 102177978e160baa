// What can be made again is kept in one folder, and small files of it may vanish or break at any
// time.
//
// What is in there is believed: drivers run compiled code that they find. So it is used only where
// it is the user's alone: a folder that belongs to whom this process runs as, that nobody else can
// write to and that no other user's link leads to. In it no links are followed. Where there is no
// such folder nothing is kept, which is said once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// $REWIND_CACHE, else $XDG_CACHE_HOME/rewind, else $HOME/.cache/rewind; empty if none is set. The
// latter two count only as absolute paths, as the XDG specification demands: a user who calls a
// program in some folder does not mean that folder's contents to be its cache.
std::filesystem::path user_cache_directory();
// The same, created if it is missing. FileError if there is none, or if it is not as described
// above.
std::filesystem::path make_cache_directory();

// The bytes that write_cache() wrote, or empty if they are not available in full.
std::vector<std::byte> read_cache(const std::string& file);
// Replaces the file atomically; does nothing if there is no folder or it cannot be written.
void write_cache(const std::string& file, std::span<const std::byte> contents);

// The same for a text that people may read, of at most 1 MiB, without a checksum. Nothing if it
// does not exist, and false if it was not written.
std::optional<std::string> read_cache_text(const std::string& file);
bool write_cache_text(const std::string& file, std::string_view text);

// False if there was none. FileError if it exists and stays.
bool remove_cache(const std::string& file);

}  // namespace rw
