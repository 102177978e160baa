// Runs work on several threads; the result does not depend on their number.
#pragma once

#include <cstddef>
#include <functional>

namespace rw {

// Calls work(i) once for every i of [0, n), in this order but on up to `threads` threads (0: one
// per core). If a call fails, it begins no more of them and throws what the lowest failing i threw.
void parallel_for(size_t n, int threads, const std::function<void(size_t)>& work);

}  // namespace rw
