// A device belongs to the process that opened it: drivers have threads, which a copy of the process
// (fork) does not have, and memory that both would share.
#pragma once

#include <memory>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

// Passes everything on in the process that made it. In a copy of that process, a call that reaches
// the device is a DeviceError, and its memory is dropped silently, since it belongs to the other
// process.
class OwnProcess final : public Backend {
 public:
  explicit OwnProcess(std::unique_ptr<Backend> inner);
  ~OwnProcess() override;

  Backend& inner() { return *inner_; }

  const DeviceInfo& info() const override { return inner_->info(); }
  uint32_t allocate_block(uint64_t bytes) override { return here().allocate_block(bytes); }
  uint32_t allocate_host_block(uint64_t bytes) override {
    return here().allocate_host_block(bytes);
  }
  void free_block(uint32_t block) override {
    if (!is_copy()) inner_->free_block(block);
  }
  void write(BufferRange target, const void* source) override { here().write(target, source); }
  void read(BufferRange source, void* target) override { here().read(source, target); }
  void copy(BufferRange source, BufferRange target) override { here().copy(source, target); }
  void run(const KernelCall& call) override { here().run(call); }
  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const override {
    return inner_->prepare(call);
  }
  std::function<void()> mark() override { return here().mark(); }
  const std::byte* host_bytes(BufferRange range) override { return here().host_bytes(range); }
  bool hangs() const override { return inner_->hangs(); }
  void flush() override { here().flush(); }
  void synchronize() override { here().synchronize(); }
  BackendStats stats() const override { return inner_->stats(); }
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return inner_->dry(limits);
  }
  std::vector<HeapUsage> heaps() const override { return here().heaps(); }
  std::vector<KernelVariant> kernel_variants() const override { return here().kernel_variants(); }
  std::vector<PipelineStatistics> pipeline_statistics(const std::string& text) const override {
    return here().pipeline_statistics(text);
  }
  void time_kernels(bool on) override { here().time_kernels(on); }
  std::vector<KernelTime> kernel_times() override { return here().kernel_times(); }

 private:
  bool is_copy() const;
  Backend& here() const;  // DeviceError in a copy

  std::unique_ptr<Backend> inner_;
  const int process_, generation_;
};

}  // namespace rw::vulkan
