#include "backends/vulkan/commands/staging.h"

namespace rw::vulkan {

Staging::~Staging() {
  for (Buffer& b : ring_) destroy_buffer(device_, b);
  destroy_buffer(device_, download_);
}

Staging::Piece Staging::take(uint64_t bytes) {
  check<ValueError>(bytes <= kChunk, "vulkan", "a piece must have at most {} bytes, got {}", kChunk,
                    bytes);
  if (used_ + bytes > kChunk) {
    chunk_ = (chunk_ + 1) % ring_.size();
    used_ = 0;
    recorder_.wait(ring_[chunk_].last_use);
  }
  Buffer& buffer = ring_[chunk_];
  if (!buffer.handle) buffer = create_buffer(device_, kChunk, MemoryUse::upload, "upload");
  const Piece piece{buffer.handle, used_, buffer.mapped + used_};
  // Pieces may be bound as storage buffers.
  used_ = round_up(used_ + bytes, device_.caps().offset_alignment);
  buffer.last_use = recorder_.current();
  return piece;
}

const Buffer& Staging::download() {
  if (!download_.handle)
    download_ = create_buffer(device_, kChunk, MemoryUse::download, "download");
  return download_;
}

}  // namespace rw::vulkan
