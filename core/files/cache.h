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

// $REWIND_CACHE, else $XDG_CACHE_HOME/rewind, else $HOME/.cache/rewind; empty where none is set.
// The latter two count only as absolute paths, as the XDG specification wants it: whoever calls a
// program in some folder does not mean that folder's contents to be its cache.
std::filesystem::path user_cache_directory();
// The same, made where it is missing. FileError where there is none, or another one than above.
std::filesystem::path make_cache_directory();

// What write_cache wrote, or empty where that is not to be had whole.
std::vector<std::byte> read_cache(const std::string& file);
// Replaces it atomically; does nothing where there is no folder or it cannot be written.
void write_cache(const std::string& file, std::span<const std::byte> contents);

// The same for a text that people may read, of at most 1 MiB, without a checksum. Nothing: it is
// not there. False: it was not written.
std::optional<std::string> read_cache_text(const std::string& file);
bool write_cache_text(const std::string& file, std::string_view text);

// False: there was none. FileError where it is there and stays.
bool remove_cache(const std::string& file);

}  // namespace rw
