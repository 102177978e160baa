#include "backends/vulkan/vulkan_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <pthread.h>
#include <unistd.h>
#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "backends/vulkan/commands/memory.h"
#include "backends/vulkan/commands/recorder.h"
#include "backends/vulkan/commands/staging.h"
#include "backends/vulkan/composer.h"
#include "backends/vulkan/joining_dispatcher.h"
#include "backends/vulkan/module_dispatcher.h"
#include "backends/vulkan/pipelines/profile.h"
#include "backends/vulkan/pipelines/statistics.h"

namespace rw::vulkan {

namespace {

// The process that started the program has generation 0. A query of the process's number would take
// a system call.
std::atomic<int> generation = 0;

// A device belongs to the process that opened it: drivers have threads, which a copy of the process
// (fork) does not have, and memory that both would share.
//
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
  void run_on_host(const KernelCall& call) override { here().run_on_host(call); }
  std::shared_ptr<const Preparation> prepare_on_host(const KernelCall& call) const override {
    return inner_->prepare_on_host(call);
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
  std::vector<PipelineStatistics> pipeline_statistics(const std::string& text,
                                                      const std::string& only) const override {
    return here().pipeline_statistics(text, only);
  }
  void time_kernels(bool on) override { here().time_kernels(on); }
  std::vector<KernelTime> kernel_times() override { return here().kernel_times(); }

 private:
  bool is_copy() const;
  Backend& here() const;  // DeviceError in a copy

  std::unique_ptr<Backend> inner_;
  const int process_, generation_;
};

OwnProcess::OwnProcess(std::unique_ptr<Backend> inner)
    : inner_(std::move(inner)), process_(::getpid()), generation_(generation) {
  [[maybe_unused]] static const int once = pthread_atfork(nullptr, nullptr, [] { ++generation; });
}

// Closing the device would mean waiting for threads that do not exist here, or for a kernel that
// never ends.
OwnProcess::~OwnProcess() {
  if (is_copy() || inner_->hangs()) static_cast<void>(inner_.release());
}

bool OwnProcess::is_copy() const {
  return generation.load(std::memory_order_relaxed) != generation_;
}

Backend& OwnProcess::here() const {
  if (is_copy())
    fail<DeviceError>(
        "vulkan",
        "'{}' must be used by the process that opened it, {}, got its copy {} made by "
        "fork(): open devices after fork(), or start a program there (exec)",
        info().name, process_, ::getpid());
  return *inner_;
}

constexpr uint32_t kDownloadBlock = ~0u;  // the download buffer's number for the hazard tracker

class VulkanBackend final : public Backend {
 public:
  VulkanBackend(const std::string& choice, const std::vector<RefusedFeature>& without,
                Device::Use use)
      : choice_(choice), device_(choice, without, use) {
    info_.refused = without;
  }
  ~VulkanBackend() override { recorder_.wait_or_lose(recorder_.current()); }

  const DeviceInfo& info() const override { return info_; }

  uint32_t allocate_block(uint64_t bytes) override {
    return blocks_.allocate(bytes, MemoryUse::device);
  }
  uint32_t allocate_host_block(uint64_t bytes) override {
    return blocks_.allocate(bytes, MemoryUse::host);
  }
  void free_block(uint32_t block) override {
    joining_.release();
    recorder_.wait_or_lose(blocks_.at(block).last_use);
    if (!hangs()) blocks_.free(block);
  }

  void work_ahead() { dispatcher_.work_ahead(); }

  void write(BufferRange target, const void* source) override;
  void read(BufferRange source, void* target) override;
  void copy(BufferRange source, BufferRange target) override;

  void run(const KernelCall& call) override {
    joining_.begin_call();
    composer_.run(call, joining_);
  }
  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const override {
    return composer_.passes(call);
  }
  void run_on_host(const KernelCall& call) override { host().run(call); }
  std::shared_ptr<const Preparation> prepare_on_host(const KernelCall& call) const override {
    return host().prepare(call);
  }

  using Backend::dry;
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return make_dry_backend(device_.caps(), limits);
  }

  bool hangs() const override { return recorder_.hangs(); }

  void flush() override {
    joining_.release();
    recorder_.flush();
  }
  std::function<void()> mark() override {
    flush();
    return recorder_.waiter();
  }
  const std::byte* host_bytes(BufferRange range) override {
    const Buffer& block = blocks_.at(range);
    return block.mapped && block.host_cached ? block.mapped + range.offset : nullptr;
  }
  void synchronize() override {
    joining_.release();
    recorder_.wait_all();
  }
  BackendStats stats() const override {
    return {recorder_.dispatches, recorder_.submits, recorder_.barriers, dispatcher_.pipelines()};
  }

  std::vector<HeapUsage> heaps() const override {
    return query_heaps(device_.physical(), device_.caps());
  }
  std::vector<KernelVariant> kernel_variants() const override {
    return dispatcher_.kernel_variants();
  }
  std::vector<PipelineStatistics> pipeline_statistics(const std::string& text,
                                                      const std::string& only) const override {
    return vulkan::pipeline_statistics(choice_, info_.refused, text, only);
  }
  void time_kernels(bool on) override {
    joining_.release();
    recorder_.time_kernels(on);
  }
  std::vector<KernelTime> kernel_times() override {
    joining_.release();
    return recorder_.kernel_times();
  }

 private:
  // The processor, with the addresses at which host blocks are mapped.
  Backend& host() const {
    if (!host_)
      host_ = make_cpu_backend([this](BufferRange range) {
        return const_cast<Blocks&>(blocks_).at(range).mapped + range.offset;
      });
    return *host_;
  }

  std::string choice_;
  Device device_;
  DeviceInfo info_ = to_info(device_.caps());
  Blocks blocks_{device_};
  Recorder recorder_{device_};
  Staging staging_{device_, recorder_};
  ModuleDispatcher dispatcher_{device_, blocks_, recorder_, staging_};
  JoiningDispatcher joining_{dispatcher_, &recorder_};
  Composer composer_{device_.caps()};
  mutable std::unique_ptr<Backend> host_;  // once it was asked for
};

void VulkanBackend::write(BufferRange target, const void* source) {
  joining_.release();
  Buffer& block = blocks_.at(target);
  const auto* bytes = static_cast<const std::byte*>(source);
  if (block.mapped && recorder_.completed() >= block.last_use) {
    std::memcpy(block.mapped + target.offset, bytes, target.size);
    return;
  }
  for (uint64_t done = 0; done < target.size;) {
    const uint64_t size = std::min(Staging::kChunk, target.size - done);
    const Staging::Piece piece = staging_.take(size);
    std::memcpy(piece.data, bytes + done, size);
    const uint64_t at = target.offset + done;
    const Use use = use_of({target.block, at, size}, true);
    const VkBufferCopy region{piece.offset, at, size};
    vkCmdCopyBuffer(recorder_.begin_copy({&use, 1}, "write"), piece.buffer, block.handle, 1,
                    &region);
    block.last_use = recorder_.current();
    recorder_.end(0, 2.0 * static_cast<double>(size));
    done += size;
  }
}

void VulkanBackend::read(BufferRange source, void* target) {
  joining_.release();
  Buffer& block = blocks_.at(source);
  auto* bytes = static_cast<std::byte*>(target);
  if (block.mapped && block.host_cached) {
    recorder_.wait(block.last_use);
    std::memcpy(bytes, block.mapped + source.offset, source.size);
    return;
  }
  for (uint64_t done = 0; done < source.size;) {
    const uint64_t size = std::min(Staging::kChunk, source.size - done);
    const Buffer& download = staging_.download();
    const uint64_t at = source.offset + done;
    const Use uses[] = {use_of({source.block, at, size}, false),
                        use_of({kDownloadBlock, 0, size}, true)};
    const VkBufferCopy region{at, 0, size};
    vkCmdCopyBuffer(recorder_.begin_copy(uses, "read"), block.handle, download.handle, 1, &region);
    block.last_use = recorder_.current();
    recorder_.end(0, 2.0 * static_cast<double>(size));
    recorder_.wait_all();
    std::memcpy(bytes + done, download.mapped, size);
    done += size;
  }
}

void VulkanBackend::copy(BufferRange source, BufferRange target) {
  joining_.release();
  if (source.size == 0) return;
  Buffer &from = blocks_.at(source), &to = blocks_.at(target);
  const Use uses[] = {use_of(source, false),
                      use_of({target.block, target.offset, source.size}, true)};
  const VkBufferCopy region{source.offset, target.offset, source.size};
  vkCmdCopyBuffer(recorder_.begin_copy(uses, "copy"), from.handle, to.handle, 1, &region);
  from.last_use = to.last_use = recorder_.current();
  recorder_.end(0, 2.0 * static_cast<double>(source.size));
}

}  // namespace

std::unique_ptr<Backend> make_backend(const std::string& choice,
                                      const std::vector<RefusedFeature>& without, bool for_checks) {
  const auto use = for_checks ? Device::Use::checks : Device::Use::programs;
  return std::make_unique<OwnProcess>(std::make_unique<VulkanBackend>(choice, without, use));
}

void work_ahead(Backend& device) {
  dynamic_cast<VulkanBackend&>(dynamic_cast<OwnProcess&>(device).inner()).work_ahead();
}

std::unique_ptr<Backend> make_dry_backend(const std::string& profile, const std::string& file) {
  const Caps caps = parse_caps(profile, file);
  return make_dry_backend(caps, to_info(caps));
}

std::string profile(const std::string& choice, const std::vector<RefusedFeature>& without) {
  return to_json(Device(choice, without).caps());
}

std::vector<DeviceListing> list_devices() {
  const Instance instance;
  std::vector<DeviceListing> all;
  for (VkPhysicalDevice device : instance.devices()) {
    const Caps caps = query_caps(instance.handle(), device);
    all.push_back({to_info(caps), caps.type, caps.pci_address, query_heaps(device, caps)});
  }
  return all;
}

}  // namespace rw::vulkan
