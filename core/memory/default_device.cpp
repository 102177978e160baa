// The default device of the process, and that of a thread.
#include "core/memory/default_device.h"

#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/base/thread_state.h"

namespace rw {

namespace {

// The program's exit never destroys it: by then drivers and layers have torn down their own
// statics.
std::shared_ptr<Device>& the_default_device = *new std::shared_ptr<Device>;
std::mutex default_mutex;  // of the_default_device
const std::thread::id main_thread = std::this_thread::get_id();

}  // namespace

std::shared_ptr<Device> set_default_device(std::unique_ptr<Backend> backend,
                                           uint64_t memory_limit) {
  const auto device = Device::create(std::move(backend), memory_limit);
  set_default_device(device);
  return device;
}

namespace {

// Thread-local objects die before the exit handlers, where drivers and layers tear down what the
// device still needs (a CPU driver may even be compiling kernels). So queued work is finished here,
// and the main thread closes the default device.
struct CloseAtExit {
  ~CloseAtExit() {
    std::shared_ptr<Device> device;  // dies outside the lock
    {
      const std::lock_guard lock(default_mutex);
      device = the_default_device;
      if (std::this_thread::get_id() == main_thread) the_default_device.reset();
    }
    try {
      if (device) device->synchronize();
    } catch (const Error&) {  // a lost device has nothing left to finish
    }
  }
};

}  // namespace

std::shared_ptr<Device> exchange_default_device(std::shared_ptr<Device> device) {
  [[maybe_unused]] thread_local const CloseAtExit close;
  if (auto& own = thread_state().device) return std::exchange(*own, std::move(device));
  const std::lock_guard lock(default_mutex);
  return std::exchange(the_default_device, std::move(device));
}

void set_default_device(std::shared_ptr<Device> device) {
  exchange_default_device(std::move(device));
}

std::shared_ptr<Device> default_device() {
  std::shared_ptr<Device> device;
  if (const auto& own = thread_state().device) {
    device = *own;
  } else {
    const std::lock_guard lock(default_mutex);
    device = the_default_device;
  }
  check<DeviceError>(
      device != nullptr, "device",
      "a default device must be set first: set_default_device(open_backend(\"vulkan\"))");
  return device;
}

DeviceScope::DeviceScope(std::shared_ptr<Device> device)
    : previous_(std::exchange(thread_state().device, std::move(device))) {}

DeviceScope::~DeviceScope() {
  thread_state().device = std::move(previous_);
}

}  // namespace rw
