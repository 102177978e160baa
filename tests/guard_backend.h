// A backend that watches another: new blocks are filled with NaN, and every kernel may change only
// the bytes of its own outputs and workspace.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "../core/backend/backend.h"

namespace rw::test {

class GuardBackend : public Backend {
 public:
  // `watch` false: passes everything on.
  GuardBackend(std::shared_ptr<Backend> inner, bool watch)
      : inner_(std::move(inner)), watch_(watch) {}

  // Kernels that wrote elsewhere, since the last call.
  std::vector<std::string> take_culprits() { return std::exchange(culprits_, {}); }

  const DeviceInfo& info() const override { return inner_->info(); }
  uint32_t allocate_block(uint64_t bytes) override {
    const uint32_t block = inner_->allocate_block(bytes);
    if (watch_) {
      const std::vector<std::byte> nan(bytes, std::byte{0xFF});
      inner_->write({block, 0, bytes}, nan.data());
      sizes_[block] = bytes;
    }
    return block;
  }
  void free_block(uint32_t block) override {
    sizes_.erase(block);
    inner_->free_block(block);
  }
  void write(BufferRange target, const void* source) override { inner_->write(target, source); }
  void read(BufferRange source, void* target) override { inner_->read(source, target); }
  void run(const KernelCall& call) override {
    if (!watch_) return inner_->run(call);
    Contents before = contents();
    inner_->run(call);
    Contents after = contents();
    const auto forgive = [&](const BufferRange& range) {
      if (range.size == 0) return;
      for (Contents* c : {&before, &after})
        std::memset(c->at(range.block).data() + range.offset, 0, range.size);
    };
    for (const Binding& binding : call.bindings)
      if (binding.access != Access::read) forgive(binding.range);
    forgive(call.workspace);
    if (before != after) culprits_.emplace_back(call.kernel);
  }
  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const override {
    return inner_->prepare(call);
  }
  void flush() override { inner_->flush(); }
  void synchronize() override { inner_->synchronize(); }
  BackendStats stats() const override { return inner_->stats(); }

 private:
  using Contents = std::map<uint32_t, std::vector<std::byte>>;
  Contents contents() {
    Contents all;
    for (const auto& [block, size] : sizes_) {
      all[block].resize(size);
      inner_->read({block, 0, size}, all[block].data());
    }
    return all;
  }

  std::shared_ptr<Backend> inner_;
  bool watch_;
  std::map<uint32_t, uint64_t> sizes_;
  std::vector<std::string> culprits_;
};

}  // namespace rw::test
