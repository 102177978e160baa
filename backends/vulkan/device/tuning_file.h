// The stored choices of `./rewind tune`: a JSON file of the cache folder for each device, driver
// and build, and a member of saved profiles.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "caps.h"

namespace rw::vulkan {

nlohmann::json tuning_json(const Tuning& tuning);
// Throws a FileError with `file` and its fault.
Tuning parse_tuning(const nlohmann::json& json, const std::string& file);

// Returns its name in the cache folder, from everything that decides which ways to run there are.
std::string tuning_file(const Caps& caps);
// Returns the choices for the device; empty if there are none, and, after a warning, if the file is
// broken or another device's.
Tuning read_tuning(const Caps& caps);
Tuning load_tuning(const Caps& caps);  // the same, and empty with REWIND_WITHOUT=tuning
// Replaces the file atomically. FileError if that fails.
void save_tuning(const Caps& caps, const Tuning& tuning);
bool forget_tuning(const Caps& caps);  // returns false if there was none

}  // namespace rw::vulkan
