#include "core/memory/storage.h"

#include <utility>

namespace rw {

namespace {

std::atomic<uint64_t> next_id = 1;

}  // namespace

Storage::Storage(std::shared_ptr<StorageOwner> owner, Device& device, const Shape& shape,
                 DType dtype)
    : owner_(std::move(owner)),
      device_(device),
      made_(context()),
      shape_(shape),
      dtype_(dtype),
      bytes_(static_cast<uint64_t>(shape.numel()) * size_of(dtype)),
      id_(next_id++) {}

}  // namespace rw
