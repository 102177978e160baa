// Copies from the device to the host for messages.
#pragma once

#include <functional>
#include <vector>

#include "../core/memory/device.h"
#include "../core/tensor/tensor.h"

namespace rw {

// A tensor in host memory that the device writes, for another thread to read.
struct HostCopy {
  Tensor tensor;                     // undefined: none yet
  std::vector<std::byte> own_bytes;  // where the host does not reach it
  std::function<void()> wait;        // until the bytes are there
  const std::byte* bytes = nullptr;

  // Marks the point after what was queued last.
  void mark() {
    Device& device = tensor.device();
    if (device.backend().is_dry()) return;  // there are no bytes, and nobody sends them
    const Storage& storage = *tensor.impl().storage;
    wait = device.mark();
    bytes = device.host_bytes(storage);
    if (bytes) return;
    own_bytes.resize(storage.bytes());
    device.read(storage, 0, storage.bytes(), own_bytes.data());
    bytes = own_bytes.data();
  }
};

// Uninitialised, in memory that does not count as the device's.
inline Tensor empty_on_host(int64_t elements, DType dtype, Device& device) {
  const PurposeScope purpose(Purpose::workspace);
  const PlaceScope place(MemoryPlace::host);
  return empty({elements}, dtype, device.shared_from_this());
}

}  // namespace rw
