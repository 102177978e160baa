// What `./rewind tune` chose for a device.
#pragma once

#include <map>
#include <string>

#include "matrix_choice.h"

namespace rw::vulkan {

// The ways to run calls where another one than the cost model's was measured to be faster. A part
// of a device's Caps, so that dry runs have the same passes and workspaces.
struct Tuning {
  std::string made;                                    // "2026-11-24 07:30 UTC"
  std::map<std::string, Choice, std::less<>> choices;  // by class_of()

  bool operator==(const Tuning&) const = default;
};

}  // namespace rw::vulkan
