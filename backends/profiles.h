// The profiles of devices that come with Rewind (benchmarks/profiles), found by name.
#pragma once

#include <filesystem>
#include <string>

namespace rw {

// `name` if it is a file or contains a folder; else the profile of that name beside the program,
// where Rewind is installed, or in its source tree. Throws a FileError that lists them if there is
// none.
std::filesystem::path find_profile(const std::string& name);

}  // namespace rw
