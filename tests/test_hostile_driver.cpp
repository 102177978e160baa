// Drivers that do not keep what they promise, and their compiled kernels on disk.
#include <doctest/doctest.h>

#include <dlfcn.h>
#include <unistd.h>

#include "rewind/backends/open.h"
#include "rewind/backends/vulkan/vk.h"
#include "rewind/core/base/cache.h"
#include "rewind/core/base/error.h"
#include "rewind/core/ops/ops.h"
#include "tests/env.h"
#include "tests/file_fixture.h"

using namespace rw;
using test::bytes_of;
using test::Env;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

bool maps_nothing = false;

struct MapsNothing {
  MapsNothing() { maps_nothing = true; }
  ~MapsNothing() { maps_nothing = false; }
};

// The folder's only file.
fs::path only_file(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  return files[0];
}

// Opens the device, computes, and closes it, which writes the cache.
void use_device() {
  const auto before = exchange_default_device(nullptr);
  set_default_device(open_backend("vulkan"));
  CHECK(sum(full({1000}, 2)).item() == 2000);
  exchange_default_device(before);
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

// Takes the place of the loader's function in this program.
extern "C" VKAPI_ATTR VkResult VKAPI_CALL vkMapMemory(VkDevice device, VkDeviceMemory memory,
                                                      VkDeviceSize offset, VkDeviceSize size,
                                                      VkMemoryMapFlags flags, void** data) {
  static const auto real = reinterpret_cast<PFN_vkMapMemory>(dlsym(RTLD_NEXT, "vkMapMemory"));
  if (!maps_nothing) return real(device, memory, offset, size, flags, data);
  *data = nullptr;
  return VK_SUCCESS;
}

TEST_CASE("vulkan: memory that the driver maps nowhere is an error") {
  const Env staging("REWIND_NO_UNIFIED_MEMORY", "1");  // maps what it stages, on any device
  auto backend = open_backend("vulkan");
  const BufferRange range{backend->allocate_block(4096), 0, 4096};
  const std::vector<std::byte> bytes(4096, std::byte{7});
  std::vector<std::byte> back(4096);
  {
    const MapsNothing now;
    CHECK_THROWS_AS(backend->write(range, bytes.data()), OutOfMemory);
    CHECK_THROWS_AS(backend->read(range, back.data()), OutOfMemory);
  }
  backend->write(range, bytes.data());  // it goes on where there is memory again
  backend->read(range, back.data());
  CHECK(back == bytes);
}

TEST_CASE("vulkan: a cache of compiled kernels that is broken is made again") {
  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder.path.c_str()), trusts("REWIND_NO_SELF_CHECK", "1");
  use_device();
  const fs::path file = only_file(folder.path);
  CHECK(file.filename().string().starts_with("pipelines-"));
  const std::string whole = bytes_of(file);
  const auto damaged = [&](auto&& damage) {
    std::string text = whole;
    damage(text);
    std::ofstream(file, std::ios::binary) << text;
    CHECK(read_cache(file.filename().string()).empty());
    use_device();
    CHECK(!read_cache(file.filename().string()).empty());
  };
  damaged([](std::string& text) { text.resize(text.size() / 2); });
  damaged([](std::string& text) { text.resize(5); });
  damaged([](std::string& text) { text.clear(); });
  damaged([](std::string& text) { text.back() ^= 1; });
  damaged([](std::string& text) { text[0] ^= 1; });
  damaged([](std::string& text) { text += "more"; });
  fs::remove(file);
  fs::create_directory(file);  // no file, and nothing can take its place
  CHECK(read_cache(file.filename().string()).empty());
  use_device();
  CHECK(only_file(folder.path) == file);
}

TEST_CASE("cache: compiled kernels are never read from the current folder" *
          doctest::test_suite("host")) {
  const TemporaryFolder folder;
  {
    const Env own("REWIND_CACHE", folder.path.c_str());
    write_cache("kernels.bin", as_bytes("contents"));
    CHECK(read_cache("kernels.bin").size() == 8);
  }
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  {
    const Env none("REWIND_CACHE", ""), no_xdg("XDG_CACHE_HOME", ""), no_home("HOME", "");
    CHECK(read_cache("kernels.bin").empty());
    write_cache("other.bin", as_bytes("contents"));
    // A folder of that name below the current one is none of the user's either.
    fs::create_directories(folder.path / "here/rewind");
    fs::copy_file(folder.path / "kernels.bin", folder.path / "here/rewind/kernels.bin");
    const Env relative("XDG_CACHE_HOME", "here");
    CHECK(read_cache("kernels.bin").empty());
  }
  CHECK(!fs::exists(folder.path / "other.bin"));
  fs::current_path(before);
}
