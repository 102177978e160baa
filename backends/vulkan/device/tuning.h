// The choices of `./rewind tune` for a device.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "matrix_choice.h"

namespace rw::vulkan {

// The measurements of `tune`: the speed of copies to the host's memory and back, and the ways to
// run calls for which another way than the cost model's was measured to be faster. It is part of a
// device's Caps, so dry runs have the same passes and workspaces.
struct Tuning {
  std::string made;                                    // "2026-11-24 07:30 UTC"
  std::map<std::string, Choice, std::less<>> choices;  // by class_of()
  // Between the device's memory and the host's, in bytes per second; 0: not measured.
  uint64_t to_host = 0, from_host = 0;
  uint64_t host_updates = 0;  // HostBandwidth::updates

  bool operator==(const Tuning&) const = default;
};

}  // namespace rw::vulkan
