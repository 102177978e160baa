// Host-visible memory in which data waits for the device (a ring) or for the host (one buffer).
#pragma once

#include <array>

#include "memory.h"
#include "recorder.h"

namespace rw::vulkan {

class Staging {
 public:
  static constexpr uint64_t kChunk = 8 << 20;  // the most bytes of one piece

  Staging(const Device& device, Recorder& recorder) : device_(device), recorder_(recorder) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  struct Piece {
    VkBuffer buffer;
    uint64_t offset;
    std::byte* data;
  };
  // Returns room that the next recorded step reads. It may flush and wait, so take it before
  // begin().
  Piece take(uint64_t bytes);
  // Returns kChunk bytes to read back through.
  const Buffer& download();

 private:
  const Device& device_;
  Recorder& recorder_;
  std::array<Buffer, 4> ring_;  // created when first needed
  size_t chunk_ = 0;            // in use
  uint64_t used_ = 0;           // bytes of it
  Buffer download_;
};

}  // namespace rw::vulkan
