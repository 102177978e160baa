// A device's limits as text: dry runs can predict a machine that is not present.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "../../../core/backend/backend.h"
#include "../device/caps.h"

namespace rw::vulkan {

std::string to_json(const Caps& caps);
// Throws FileError naming `file` and what is missing, of the wrong type, or out of its range.
Caps parse_caps(const std::string& json, const std::string& file);

DeviceInfo to_info(const Caps& caps);
// Predicts a device with these limits: its blocks, and the workspaces of its kernel variants.
// `limits`: to_info(caps), or with other limits of memory.
// `listen`, where there is one, is told the calls that would run.
std::unique_ptr<Backend> make_dry_backend(const Caps& caps, const DeviceInfo& limits,
                                          std::function<void(const KernelCall&)> listen = {});

}  // namespace rw::vulkan
