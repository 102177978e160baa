// The choices of `./rewind tune`, kept: a JSON file of the cache folder for each device, driver and
// build, and a member of saved profiles.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "caps.h"

namespace rw::vulkan {

nlohmann::json tuning_json(const Tuning& tuning);
// Throws FileError naming `file` and what is wrong.
Tuning parse_tuning(const nlohmann::json& json, const std::string& file);

// Its name in the cache folder: of all that decides which ways to run there are.
std::string tuning_file(const Caps& caps);
// What is kept for the device; empty where nothing is, and, after a warning, where the file is
// broken or another device's.
Tuning read_tuning(const Caps& caps);
Tuning load_tuning(const Caps& caps);  // the same, and empty with REWIND_WITHOUT=tuning
// Replaces it atomically. FileError where that cannot be.
void save_tuning(const Caps& caps, const Tuning& tuning);
bool forget_tuning(const Caps& caps);  // false: there was none

}  // namespace rw::vulkan
