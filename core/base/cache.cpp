#include "rewind/core/base/cache.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <unistd.h>

#include "rewind/core/base/cache_directory.h"
#include "rewind/core/base/error.h"
#include "rewind/core/base/hash.h"

namespace rw {

namespace {

namespace fs = std::filesystem;

// In front of the contents: drivers trust what they are given, so damage must be found before.
struct Seal {
  uint64_t magic = 0x3165686361637772u;  // "rwcache1"
  uint64_t bytes = 0, hash = 0;
  bool operator==(const Seal&) const = default;
};

Seal seal_of(std::span<const std::byte> contents) {
  return {.bytes = contents.size(), .hash = fnv1a(contents)};
}

// Writes the file beside its place first, so that it is there whole or not at all.
bool replace(const std::string& file, std::initializer_list<std::span<const std::byte>> pieces) {
  const fs::path directory = user_cache_directory();
  if (directory.empty()) return false;
  std::error_code error;
  fs::create_directories(directory, error);
  static std::atomic<uint64_t> count = 0;  // several devices of a process may do so at once
  const fs::path part = directory / fmt::format("{}.{}.{}.part", file, getpid(), count++);
  std::ofstream out(part, std::ios::binary);
  for (const auto& piece : pieces)
    out.write(reinterpret_cast<const char*>(piece.data()),
              static_cast<std::streamsize>(piece.size()));
  out.close();
  if (out) fs::rename(part, directory / file, error);
  const bool done = out && !error;
  if (!done) fs::remove(part, error);
  return done;
}

}  // namespace

std::vector<std::byte> read_cache(const std::string& file) {
  constexpr uint64_t most = uint64_t{1} << 30;
  const fs::path directory = user_cache_directory();
  std::error_code unknown;
  if (directory.empty() || !fs::is_regular_file(directory / file, unknown)) return {};
  const uint64_t size = fs::file_size(directory / file, unknown);
  std::ifstream in(directory / file, std::ios::binary);
  Seal seal;
  if (unknown || size < sizeof seal || size > most || !in) return {};
  std::vector<std::byte> contents(size - sizeof seal);
  in.read(reinterpret_cast<char*>(&seal), sizeof seal);
  in.read(reinterpret_cast<char*>(contents.data()), static_cast<std::streamsize>(contents.size()));
  return in && seal == seal_of(contents) ? contents : std::vector<std::byte>{};
}

void write_cache(const std::string& file, std::span<const std::byte> contents) {
  const Seal seal = seal_of(contents);
  replace(file, {std::as_bytes(std::span(&seal, 1)), contents});
}

bool write_cache_text(const std::string& file, std::string_view text) {
  return replace(file, {std::as_bytes(std::span(text))});
}

}  // namespace rw
