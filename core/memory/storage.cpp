#include "core/memory/storage.h"

#include <utility>

namespace rw {

namespace {

std::atomic<uint64_t> newest_id = 0;

}  // namespace

uint64_t Storage::newest() {
  return newest_id;
}

Storage::Storage(std::shared_ptr<StorageOwner> owner, Device& device, const Shape& shape,
                 DType dtype)
    : owner_(std::move(owner)),
      device_(device),
      made_(context()),
      shape_(shape),
      dtype_(dtype),
      bytes_(static_cast<uint64_t>(shape.numel()) * size_of(dtype)),
      id_(++newest_id),
      contents_(id_) {}

void Storage::take_over() {
  contents_ = ++newest_id;
  notes_writes_ = false;
}

}  // namespace rw
