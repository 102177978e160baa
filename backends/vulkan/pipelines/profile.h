// A device's limits as text, from which dry runs can predict a machine that is not present.
#pragma once

#include <string>

#include "../../../core/backend/backend.h"
#include "../device/caps.h"

namespace rw::vulkan {

std::string to_json(const Caps& caps);
// Throws a FileError with `file` and what is missing, of the wrong type, or out of range.
Caps parse_caps(const std::string& json, const std::string& file);

DeviceInfo to_info(const Caps& caps);

}  // namespace rw::vulkan
