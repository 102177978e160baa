// A backend without memory and without compute: it takes every call, so that a program's
// allocations can be counted before any of them is made.
#pragma once

#include <functional>
#include <memory>

#include "../../core/backend/backend.h"

namespace rw {

// Predicts a device of this description; each prediction asks `make_prepare` for a Backend::prepare
// of its own (null if empty). Blocks are limited as on the device; reads give zeros. `listen`, if
// set, receives the calls that would run, also from predictions of this one. `make_host_prepare`
// makes Backend::prepare_on_host; if empty, it is the same as prepare().
using Prepare = std::function<std::shared_ptr<const Preparation>(const KernelCall&)>;
using MakePrepare = std::function<Prepare()>;
using Listen = std::function<void(const KernelCall&)>;
std::unique_ptr<Backend> make_dry_backend(DeviceInfo info, MakePrepare make_prepare = {},
                                          Listen listen = {}, MakePrepare make_host_prepare = {});

}  // namespace rw
