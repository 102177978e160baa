#include "backends/vulkan/device/own_process.h"

#include <atomic>
#include <pthread.h>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"

namespace rw::vulkan {

namespace {

// The process that started the program has generation 0. A query of the process's number would take
// a system call.
std::atomic<int> generation = 0;

}  // namespace

OwnProcess::OwnProcess(std::unique_ptr<Backend> inner)
    : inner_(std::move(inner)), process_(::getpid()), generation_(generation) {
  [[maybe_unused]] static const int once = pthread_atfork(nullptr, nullptr, [] { ++generation; });
}

// Closing the device would mean waiting for threads that do not exist here, or for a kernel that
// never ends.
OwnProcess::~OwnProcess() {
  if (is_copy() || inner_->hangs()) static_cast<void>(inner_.release());
}

bool OwnProcess::is_copy() const {
  return generation.load(std::memory_order_relaxed) != generation_;
}

Backend& OwnProcess::here() const {
  if (is_copy())
    fail<DeviceError>(
        "vulkan",
        "'{}' must be used by the process that opened it, {}, got its copy {} made by "
        "fork(): open devices after fork(), or start a program there (exec)",
        info().name, process_, ::getpid());
  return *inner_;
}

}  // namespace rw::vulkan
