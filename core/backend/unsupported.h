// Calls for which a device has no kernel, however it is used.
#pragma once

#include "../base/error.h"

namespace rw {

struct Unsupported : DeviceError {
  using DeviceError::DeviceError;
};

}  // namespace rw
