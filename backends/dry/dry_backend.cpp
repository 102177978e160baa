#include "backends/dry/dry_backend.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace rw {

namespace {

class DryBackend final : public Backend {
 public:
  DryBackend(DeviceInfo info, MakePrepare make_prepare, Listen listen,
             MakePrepare make_host_prepare)
      : info_(std::move(info)),
        make_prepare_(std::move(make_prepare)),
        make_host_prepare_(std::move(make_host_prepare)),
        prepare_(make_prepare_ ? make_prepare_() : Prepare{}),
        listen_(std::move(listen)) {}

  const DeviceInfo& info() const override { return info_; }

  uint32_t allocate_block(uint64_t bytes) override {
    check<OutOfMemory>(bytes > 0 && bytes <= info_.max_block_bytes, "dry",
                       "a block must have 1 to {} bytes, got {}", info_.max_block_bytes, bytes);
    check<OutOfMemory>(bytes <= info_.memory_bytes - used_, "dry",
                       "the device has {} bytes, {} of them in use, got {} more",
                       info_.memory_bytes, used_, bytes);
    used_ += bytes;
    return add_block({bytes, false});
  }

  // Nobody knows how much memory the host will have free, so there is always enough.
  uint32_t allocate_host_block(uint64_t bytes) override {
    check<OutOfMemory>(bytes > 0 && bytes <= info_.max_block_bytes, "dry",
                       "a block must have 1 to {} bytes, got {}", info_.max_block_bytes, bytes);
    return add_block({bytes, true});
  }

  void free_block(uint32_t block) override {
    check_range("free_block", {block, 0, 0});
    if (!blocks_[block].is_host) used_ -= blocks_[block].bytes;
    blocks_[block] = {};
  }

  void write(BufferRange target, const void*) override { check_range("write", target); }
  void read(BufferRange source, void* target) override {
    check_range("read", source);
    std::memset(target, 0, source.size);
  }
  void copy(BufferRange source, BufferRange target) override {
    check_range("copy", source);
    check_range("copy", target);
  }

  void run(const KernelCall& call) override {
    for (const Binding& b : call.bindings) check_range(call.kernel, b.range);
    if (listen_) listen_(call);
    ++stats_.dispatches;
  }
  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const override {
    return prepare_ ? prepare_(call) : nullptr;
  }
  std::shared_ptr<const Preparation> prepare_on_host(const KernelCall& call) const override {
    if (!make_host_prepare_) return prepare(call);
    if (!host_prepare_) host_prepare_ = make_host_prepare_();
    return host_prepare_(call);
  }

  void synchronize() override {}
  BackendStats stats() const override { return stats_; }
  using Backend::dry;
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return make_dry_backend(limits, make_prepare_, listen_, make_host_prepare_);
  }
  bool is_dry() const override { return true; }

 private:
  struct Block {
    uint64_t bytes = 0;  // 0: the number is free
    bool is_host = false;
  };

  uint32_t add_block(Block block) {
    const auto free =
        std::find_if(blocks_.begin(), blocks_.end(), [](const Block& b) { return b.bytes == 0; });
    const auto number = static_cast<uint32_t>(free - blocks_.begin());
    if (free == blocks_.end()) blocks_.emplace_back();
    blocks_[number] = block;
    return number;
  }

  void check_range(std::string_view op, BufferRange range) const {
    const uint64_t bytes = range.block < blocks_.size() ? blocks_[range.block].bytes : 0;
    check<ValueError>(bytes > 0 && range.offset <= bytes && range.size <= bytes - range.offset, op,
                      "bytes must lie inside an allocated block, got {} at {} of block {}",
                      range.size, range.offset, range.block);
  }

  DeviceInfo info_;
  MakePrepare make_prepare_, make_host_prepare_;
  Prepare prepare_;
  mutable Prepare host_prepare_;  // once it was asked for
  Listen listen_;
  std::vector<Block> blocks_;
  uint64_t used_ = 0;  // of the device's memory
  BackendStats stats_;
};

}  // namespace

std::unique_ptr<Backend> make_dry_backend(DeviceInfo info, MakePrepare make_prepare, Listen listen,
                                          MakePrepare make_host_prepare) {
  return std::make_unique<DryBackend>(std::move(info), std::move(make_prepare), std::move(listen),
                                      std::move(make_host_prepare));
}

}  // namespace rw
