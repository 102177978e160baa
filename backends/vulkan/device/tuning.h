// The choices of `./rewind tune` for a device.
#pragma once

#include <map>
#include <string>

#include "matrix_choice.h"

namespace rw::vulkan {

// The ways to run calls for which another way than the cost model's was measured to be faster. It
// is part of a device's Caps, so dry runs have the same passes and workspaces.
struct Tuning {
  std::string made;                                    // "2026-11-24 07:30 UTC"
  std::map<std::string, Choice, std::less<>> choices;  // by class_of()

  bool operator==(const Tuning&) const = default;
};

}  // namespace rw::vulkan
