#include "backends/vulkan/cache.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backends/vulkan/vk.h"

namespace rw::vulkan {

namespace {

namespace fs = std::filesystem;

fs::path cache_directory() {
  if (std::string xdg = env_text("XDG_CACHE_HOME"); !xdg.empty()) return fs::path(xdg) / "rewind";
  if (std::string home = env_text("HOME"); !home.empty()) return fs::path(home) / ".cache/rewind";
  return {};
}

}  // namespace

std::vector<std::byte> read_cache(const std::string& file) {
  std::ifstream in(cache_directory() / file, std::ios::binary | std::ios::ate);
  if (!in) return {};
  std::vector<std::byte> contents(static_cast<size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(contents.data()), static_cast<std::streamsize>(contents.size()));
  return in ? contents : std::vector<std::byte>{};
}

void write_cache(const std::string& file, std::span<const std::byte> contents) {
  const fs::path directory = cache_directory();
  if (directory.empty()) return;
  std::error_code error;
  fs::create_directories(directory, error);
  const fs::path part = directory / fmt::format("{}.{}.part", file, getpid());
  {
    std::ofstream out(part, std::ios::binary);
    out.write(reinterpret_cast<const char*>(contents.data()),
              static_cast<std::streamsize>(contents.size()));
    if (!out.flush()) return;
  }
  fs::rename(part, directory / file, error);
}

}  // namespace rw::vulkan
