// A call as the cpu backend prepares it before it runs: a Preparation that can run it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "../../core/backend/backend.h"
#include "work.h"

namespace rw::cpu {

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The bytes of a call on the host.
struct Memory {
  std::span<std::byte* const> bindings;
  std::byte* workspace = nullptr;

  // Returns element `offset` of binding i.
  template <class T>
  T* at(size_t i, uint64_t offset) const {
    return reinterpret_cast<T*>(bindings[i]) + offset;
  }
};

class PreparedCall : public Preparation {
 public:
  virtual void run(const KernelCall& call, const Memory& memory) const = 0;

 protected:
  // Reserves `count` floats of scratch in the workspace and returns where they begin.
  uint64_t scratch(uint64_t count) {
    const uint64_t begin = workspace_bytes;
    workspace_bytes += (count * sizeof(float) + 255) / 256 * 256;
    return begin;
  }
  static float* floats(const Memory& memory, uint64_t begin) {
    return reinterpret_cast<float*>(memory.workspace + begin);
  }

  // Reserves as much for each thread that works on pieces; place_slots() follows the last of these.
  uint64_t slot_scratch(uint64_t count) {
    const uint64_t begin = slot_floats_;
    slot_floats_ += (count + 63) / 64 * 64;
    return begin;
  }
  void place_slots(int64_t pieces) {
    slots_ = static_cast<int>(std::min<int64_t>(pieces, threads()));
    slots_begin_ = scratch(slot_floats_ * static_cast<uint64_t>(slots_));
  }
  float* floats_of_slot(const Memory& memory, uint64_t begin) const {
    return floats(memory, slots_begin_) + static_cast<uint64_t>(slot()) * slot_floats_ + begin;
  }
  // Calls body(i) for i in [0, pieces), by as many threads as there are slots.
  template <class Body>
  void for_pieces(int64_t pieces, const Body& body) const {
    parallel_for(pieces, body, slots_);
  }

 private:
  int slots_ = 1;
  uint64_t slot_floats_ = 0, slots_begin_ = 0;
};

// The library that computes products, "oneDNN 3.5"; empty: there is none, and none are prepared.
std::string product_library();
// Prepare matmul, conv2d, conv2d_dgrad and conv2d_wgrad; null if the library has no form of the
// call.
std::shared_ptr<const PreparedCall> prepare_matmul(const KernelCall& call);
std::shared_ptr<const PreparedCall> prepare_convolution(const KernelCall& call);

}  // namespace rw::cpu
