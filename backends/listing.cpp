#include "backends/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <unistd.h>

namespace rw {

namespace {

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

}  // namespace

bool device_matches(const std::string& name, const std::string& uuid, size_t index,
                    const std::string& wanted) {
  constexpr std::string_view prefix = "vulkan:";
  const std::string choice = wanted.substr(wanted.starts_with(prefix) ? prefix.size() : 0);
  if (choice.starts_with("uuid=")) return uuid == lower(choice.substr(5));
  if (!choice.empty() && choice.find_first_not_of("0123456789") == std::string::npos)
    return std::to_string(index) == choice;
  return lower(name).find(lower(choice)) != std::string::npos;
}

std::string unoffered_gpu(const std::string& dev) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (fs::exists(dev + "/nvidia0", none))
    return fmt::format(
        "an NVIDIA GPU is here ({}/nvidia0), but no Vulkan driver offers it: VK_DRIVER_FILES must "
        "name its nvidia_icd.json, and the loader must find the library in it: libGLX_nvidia.so.0, "
        "or libEGL_nvidia.so.0 where there is no X11; a container gets both with "
        "NVIDIA_DRIVER_CAPABILITIES=all",
        dev);
  for (const auto& file : fs::directory_iterator(dev + "/dri", none)) {
    if (!file.path().filename().string().starts_with("renderD")) continue;
    if (access(file.path().c_str(), R_OK | W_OK) != 0)
      return fmt::format(
          "a GPU is here ({0}), but this user may not open it: add the user to the group of {0} "
          "(render or video), and log in again",
          file.path().string());
    return fmt::format(
        "a GPU is here ({}), but no Vulkan driver offers it: install its vendor's driver (Debian: "
        "apt install mesa-vulkan-drivers), or name the driver's file with VK_DRIVER_FILES",
        file.path().string());
  }
  return "";
}

}  // namespace rw
