#include "backends/profiles.h"

#include <fmt/ranges.h>

#include <set>
#include <vector>

#include "core/base/error.h"
#include "profile_folders.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// In a bundle and an installation, the profiles lie beside the program. In an installation with
// which another program links, and in the source tree, they lie where the build placed them.
std::vector<fs::path> folders() {
  std::vector<fs::path> all;
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  if (!unknown) {
    const fs::path top = program.parent_path().parent_path();
    all = {top / "profiles", top / "share/rewind/profiles"};
  }
  all.emplace_back(INSTALLED_PROFILES);
  all.emplace_back(SOURCE_PROFILES);
  return all;
}

}  // namespace

fs::path find_profile(const std::string& name) {
  std::error_code unknown;
  if (name.find('/') != name.npos || fs::exists(name, unknown)) return name;
  std::set<std::string> names;
  for (const fs::path& folder : folders()) {
    if (fs::is_regular_file(folder / name, unknown)) return folder / name;
    for (fs::directory_iterator file(folder, unknown), end; !unknown && file != end;
         file.increment(unknown))
      if (file->path().extension() == ".json") names.insert(file->path().filename().string());
  }
  fail<FileError>("device profile", "'{}' must be a file, or one of these profiles: {}", name,
                  names.empty() ? "none is found here" : fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace rw
