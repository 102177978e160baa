// Where what can be made again is kept.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace rw {

// $REWIND_CACHE, else $XDG_CACHE_HOME/rewind, else $HOME/.cache/rewind; empty where none is set.
// The latter two count only as absolute paths, as the XDG specification wants it: whoever calls a
// program in some folder does not mean that folder's contents to be its cache.
inline std::filesystem::path user_cache_directory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value ? value : "");
  };
  if (const auto own = variable("REWIND_CACHE"); !own.empty()) return own;
  if (const auto xdg = variable("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "rewind";
  if (const auto home = variable("HOME"); home.is_absolute()) return home / ".cache" / "rewind";
  return {};
}

}  // namespace rw
