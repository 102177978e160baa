#include "rewind/backends/dry/dry_backend.h"

#include <algorithm>
#include <cstring>

#include "rewind/core/base/error.h"

namespace rw {

namespace {

class DryBackend final : public Backend {
 public:
  DryBackend(DeviceInfo info, Prepare prepare)
      : info_(std::move(info)), prepare_(std::move(prepare)) {}

  const DeviceInfo& info() const override { return info_; }

  uint32_t allocate_block(uint64_t bytes) override {
    check<OutOfMemory>(bytes > 0 && bytes <= info_.max_block_bytes, "dry",
                       "a block must have 1 to {} bytes, got {}", info_.max_block_bytes, bytes);
    check<OutOfMemory>(bytes <= info_.memory_bytes - used_, "dry",
                       "the device has {} bytes, {} of them in use, got {} more",
                       info_.memory_bytes, used_, bytes);
    used_ += bytes;
    const auto free = std::find(blocks_.begin(), blocks_.end(), uint64_t{0});
    const auto number = static_cast<uint32_t>(free - blocks_.begin());
    if (free == blocks_.end()) blocks_.push_back(0);
    blocks_[number] = bytes;
    return number;
  }

  void free_block(uint32_t block) override {
    check_range("free_block", {block, 0, 0});
    used_ -= blocks_[block];
    blocks_[block] = 0;
  }

  void write(BufferRange target, const void*) override { check_range("write", target); }
  void read(BufferRange source, void* target) override {
    check_range("read", source);
    std::memset(target, 0, source.size);
  }

  void run(const KernelCall& call) override {
    for (const Binding& b : call.bindings) check_range(call.kernel, b.range);
    ++stats_.dispatches;
  }
  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const override {
    return prepare_ ? prepare_(call) : nullptr;
  }

  void synchronize() override {}
  BackendStats stats() const override { return stats_; }
  using Backend::dry;
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return make_dry_backend(limits, prepare_);
  }
  bool is_dry() const override { return true; }

 private:
  void check_range(std::string_view op, BufferRange range) const {
    const bool there = range.block < blocks_.size() && blocks_[range.block] > 0;
    check<ValueError>(there && range.offset <= blocks_[range.block] &&
                          range.size <= blocks_[range.block] - range.offset,
                      op, "bytes must lie inside an allocated block, got {} at {} of block {}",
                      range.size, range.offset, range.block);
  }

  DeviceInfo info_;
  Prepare prepare_;
  std::vector<uint64_t> blocks_;  // sizes; 0: free
  uint64_t used_ = 0;
  BackendStats stats_;
};

}  // namespace

std::unique_ptr<Backend> make_dry_backend(DeviceInfo info, Prepare prepare) {
  return std::make_unique<DryBackend>(std::move(info), std::move(prepare));
}

}  // namespace rw
