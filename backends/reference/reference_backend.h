// The reference backend: the readable definition of every kernel, by plain loops in doubles.
#pragma once

#include <memory>

#include "../../core/backend/backend.h"

namespace rw {

// Makes a backend that runs every call at once.
std::unique_ptr<Backend> make_reference_backend();

}  // namespace rw
