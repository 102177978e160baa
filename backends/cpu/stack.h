// Threads whose stacks hold the frames of all loops, whatever `ulimit -s` and the caller's thread
// have: the largest, those of attention's gradients, take 0.6 MiB.
#pragma once

#include <functional>
#include <optional>
#include <pthread.h>

namespace rw::cpu {

// Starts a thread that calls body(); the caller joins or detaches it. Returns nothing if the system
// allows no more threads.
std::optional<pthread_t> start_thread(std::function<void()> body);

// Calls body() on this thread if enough of its stack is left, else on a thread of its own, and
// passes on what body() throws.
void with_stack(const std::function<void()>& body);

}  // namespace rw::cpu
