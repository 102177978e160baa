// The cpu backend: kernels that are as fast as the processor. A call without a fast form runs the
// loop of the reference backend.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "../../core/backend/backend.h"
#include "../dry/dry_backend.h"

namespace rw {

std::unique_ptr<Backend> make_cpu_backend();
// The same for kernels on memory that another backend owns: `addresses` says where a range of its
// blocks lies. It only prepares and runs.
std::unique_ptr<Backend> make_cpu_backend(std::function<std::byte*(BufferRange)> addresses);
// Returns its Backend::prepare, for predictions.
Prepare cpu_prepare();

}  // namespace rw
