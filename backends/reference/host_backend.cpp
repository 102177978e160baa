#include "backends/reference/host_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <unistd.h>

#include "core/base/environment.h"
#include "core/base/error.h"

namespace rw {

namespace {

constexpr uint64_t block_alignment = 256;
constexpr uint64_t huge_page = 2 << 20;  // of x86-64; large blocks consist of them

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

}  // namespace

struct HostBackend::Block {
  std::shared_ptr<std::byte> memory;
  uint64_t size = 0;
};

HostBackend::HostBackend(const std::string& backend, std::vector<std::string> features,
                         Addresses addresses)
    : addresses_(std::move(addresses)) {
  info_.backend = backend;
  info_.name = cpu_model();
  info_.driver = "rewind " + backend;
  info_.is_cpu = true;
  info_.memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  info_.max_block_bytes = info_.memory_bytes;
  info_.alignment = block_alignment;
  info_.features = std::move(features);
  profile_ = env_flag("REWIND_PROFILE");
}

HostBackend::~HostBackend() {
  std::fputs(sums_.text().c_str(), stderr);
}

uint32_t HostBackend::allocate_block(uint64_t bytes) {
  check<OutOfMemory>(bytes > 0 && bytes <= info_.max_block_bytes, "allocate_block",
                     "a block must have 1 to {} bytes, got {}", info_.max_block_bytes, bytes);
  Block block = untouched_block(bytes);
  check<OutOfMemory>(block.memory != nullptr, "allocate_block",
                     "the host has less than {} bytes left", block.size);
  std::memset(block.memory.get(), 0xFF, block.size);
  return add(std::move(block));
}

// Returns a block whose pages the system supplies when they are written.
HostBackend::Block HostBackend::untouched_block(uint64_t bytes) const {
  const uint64_t size = (bytes + block_alignment - 1) / block_alignment * block_alignment;
  const uint64_t page = size < huge_page ? block_alignment : huge_page;
  std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(page, (size + page - 1) / page * page)),
      std::free);
#if defined(MADV_HUGEPAGE)
  if (memory && page == huge_page) madvise(memory.get(), size, MADV_HUGEPAGE);
#endif
  return {std::move(memory), size};
}

uint32_t HostBackend::add(Block block) {
  auto free = std::ranges::find_if(blocks_, [](const Block& b) { return !b.memory; });
  if (free == blocks_.end()) free = blocks_.insert(free, Block{});
  *free = std::move(block);
  return static_cast<uint32_t>(free - blocks_.begin());
}

std::optional<uint32_t> HostBackend::adopt_block(const std::shared_ptr<std::byte>& memory,
                                                 uint64_t bytes) {
  return add({memory, bytes});
}

// A copied value returns its pages at once, so that the process never holds more than it did.
std::optional<uint32_t> HostBackend::repack(std::span<const BufferRange> values, uint64_t bytes) {
  Block packed = untouched_block(bytes);
  if (!packed.memory) return std::nullopt;
  std::byte* to = packed.memory.get();
  uint64_t given_back = 0;  // of the current block
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [block, offset, size] = values[i];
    std::byte* const memory = resolve("repack", {block, 0, offset + size});
    for (uint64_t at = offset, end; at < offset + size; at = end) {
      end = std::min((at / huge_page + 1) * huge_page, offset + size);
      to = std::copy(memory + at, memory + end, to);
      const uint64_t copied = end / huge_page * huge_page;
      madvise(memory + given_back, copied - given_back, MADV_DONTNEED);
      given_back = copied;
    }
    if (i + 1 < values.size() && values[i + 1].block == block) continue;
    free_block(block);
    given_back = 0;
  }
  std::memset(to, 0xFF, static_cast<size_t>(packed.memory.get() + packed.size - to));
  return add(std::move(packed));
}

void HostBackend::free_block(uint32_t block) {
  check<DeviceError>(block < blocks_.size() && blocks_[block].memory, "free_block",
                     "block {} is not allocated", block);
  blocks_[block] = {};
}

void HostBackend::write(BufferRange target, const void* source) {
  if (target.size > 0) std::memcpy(resolve("write", target), source, target.size);
}

void HostBackend::read(BufferRange source, void* target) {
  if (source.size > 0) std::memcpy(target, resolve("read", source), source.size);
}

void HostBackend::copy(BufferRange source, BufferRange target) {
  if (source.size > 0) std::memcpy(resolve("copy", target), resolve("copy", source), source.size);
}

void HostBackend::run(const KernelCall& call) {
  ++calls_;
  std::array<std::byte*, 8> memory{};
  for (size_t i = 0; i < call.bindings.size(); ++i) {
    const BufferRange& range = call.bindings[i].range;
    check<DeviceError>(range.offset % block_alignment == 0, call.kernel,
                       "binding {} must start at a multiple of {} bytes, got {}", i,
                       block_alignment, range.offset);
    memory[i] = resolve(call.kernel, range);
  }
  std::byte* workspace = call.workspace.size > 0 ? resolve(call.kernel, call.workspace) : nullptr;
  const Clock::time_point start = Clock::now();
  execute(call, memory, workspace);
  if (timing_ || profile_) add_time(call.kernel, start, Clock::now());
  ++stats_.dispatches;
}

void HostBackend::time_kernels(bool on) {
  timing_ = on;
  if (!on) return;
  times_.clear();
  calls_ = 0;
  first_start_.reset();
}

std::byte* HostBackend::resolve(std::string_view op, BufferRange range) const {
  if (addresses_) return addresses_(range);
  check<DeviceError>(range.block < blocks_.size() && blocks_[range.block].memory, op,
                     "block {} is not allocated", range.block);
  const Block& block = blocks_[range.block];
  check<DeviceError>(range.offset <= block.size && range.size <= block.size - range.offset, op,
                     "bytes must lie inside block {} of {} bytes, got {} at offset {}", range.block,
                     block.size, range.size, range.offset);
  return block.memory.get() + range.offset;
}

void HostBackend::add_time(std::string_view kernel, Clock::time_point start,
                           Clock::time_point end) {
  if (profile_)
    sums_.add(std::string(kernel), std::chrono::duration<double, std::micro>(end - start).count());
  if (!timing_) return;
  if (!first_start_) first_start_ = start;
  const auto us = [&](Clock::time_point time) {
    return std::chrono::duration<double, std::micro>(time - *first_start_).count();
  };
  times_.push_back({calls_ - 1, std::string(kernel), us(start), us(end)});
}

}  // namespace rw
