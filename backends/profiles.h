// The profiles of devices that come with Rewind (benchmarks/profiles), found by name.
#pragma once

#include <filesystem>
#include <string>

namespace rw {

// Returns `name` if it is a file or contains a folder; else the profile of that name beside the
// program, in an installation of Rewind, or in its source tree. Throws a FileError that lists the
// profiles if there is none of that name.
std::filesystem::path find_profile(const std::string& name);

}  // namespace rw
