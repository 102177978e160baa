// A backend whose device is this process: its memory in blocks, copies between them, kernels that
// run at once, and times.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../core/backend/backend.h"
#include "../kernel_sums.h"

namespace rw {

class HostBackend : public Backend {
 public:
  // `backend` and `features` are the fields of DeviceInfo with these names.
  // `addresses` finds memory that another backend owns; there are no blocks then.
  using Addresses = std::function<std::byte*(BufferRange)>;
  explicit HostBackend(const std::string& backend, std::vector<std::string> features = {},
                       Addresses addresses = {});
  // Prints the times of kernels if REWIND_PROFILE is set.
  ~HostBackend() override;

  const DeviceInfo& info() const override { return info_; }
  // New memory is filled with 0xFF bytes (NaN), so that reading unwritten memory shows.
  uint32_t allocate_block(uint64_t bytes) override;
  std::optional<uint32_t> adopt_block(const std::shared_ptr<std::byte>& memory,
                                      uint64_t bytes) override;
  void free_block(uint32_t block) override;
  std::optional<uint32_t> repack(std::span<const BufferRange> values, uint64_t bytes) override;
  void write(BufferRange target, const void* source) override;
  void read(BufferRange source, void* target) override;
  void copy(BufferRange source, BufferRange target) override;
  const std::byte* host_bytes(BufferRange range) override { return resolve("host_bytes", range); }
  std::byte* host_address(BufferRange range) override { return resolve("host_address", range); }
  void run(const KernelCall& call) override;
  void synchronize() override {}
  BackendStats stats() const override { return stats_; }
  void time_kernels(bool on) override;
  std::vector<KernelTime> kernel_times() override { return std::exchange(times_, {}); }

 protected:
  // `memory` has the addresses of each binding; `workspace` is that of the call, or null.
  virtual void execute(const KernelCall& call, std::span<std::byte* const> memory,
                       std::byte* workspace) = 0;

 private:
  using Clock = std::chrono::steady_clock;
  struct Block;

  Block untouched_block(uint64_t bytes) const;
  uint32_t add(Block block);
  std::byte* resolve(std::string_view op, BufferRange range) const;
  void add_time(std::string_view kernel, Clock::time_point start, Clock::time_point end);

  DeviceInfo info_;
  const Addresses addresses_;
  std::vector<Block> blocks_;
  BackendStats stats_;
  bool timing_ = false, profile_ = false;
  uint64_t calls_ = 0;  // since time_kernels(true)
  std::optional<Clock::time_point> first_start_;
  std::vector<KernelTime> times_;
  KernelSums sums_;
};

}  // namespace rw
