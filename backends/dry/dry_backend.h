// A backend without memory and without compute: it takes every call, so that a program's
// allocations can be counted before any of them is made.
#pragma once

#include <functional>
#include <memory>

#include "rewind/core/backend/backend.h"

namespace rw {

// Predicts a device of this description; `workspace` gives the scratch bytes of its kernels (none
// where empty). Blocks are limited as on the device; reads give zeros.
using WorkspaceBytes = std::function<uint64_t(const KernelCall&)>;
std::unique_ptr<Backend> make_dry_backend(DeviceInfo info, WorkspaceBytes workspace = {});

}  // namespace rw
