// The reference backend's kernels in double: behind every floating-point element of a tensor,
// whatever its dtype, is a double, and kernels read these doubles. Gradients and differences agree
// there to many digits. The backend also watches which bytes a kernel touches.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../backends/vulkan/commands/hazards.h"
#include "../../core/backend/backend.h"
#include "../../core/tensor/tensor.h"

namespace rw::test {

// Returns the bytes that a call may touch, as declared for the barriers.
using DeclaredBytes = std::function<std::vector<vulkan::Use>(const KernelCall&)>;

class F64Backend final : public Backend {
 public:
  F64Backend();
  ~F64Backend() override;

  // From now on, the backend compares every access of a kernel with the bytes that `declared`
  // returns for the call.
  void watch(DeclaredBytes declared) { declared_ = std::move(declared); }
  // Returns the bytes that kernels touched without declaring them, since the last call.
  std::vector<std::string> take_culprits() { return std::exchange(culprits_, {}); }
  uint64_t accesses() const { return accesses_; }  // the number that was watched

  // Returns the doubles behind the elements of a dense tensor on this device.
  std::vector<double> values(const Tensor& t) const;
  void set_values(const Tensor& t, const std::vector<double>& values);

  const DeviceInfo& info() const override { return inner_->info(); }
  uint32_t allocate_block(uint64_t bytes) override;
  void free_block(uint32_t block) override;
  void write(BufferRange target, const void* source) override;
  void read(BufferRange source, void* target) override { inner_->read(source, target); }
  void copy(BufferRange source, BufferRange target) override;
  void run(const KernelCall& call) override;
  void synchronize() override {}

  // Kernels call these.
  double get(const std::byte* at, DType dtype) const;
  void set(std::byte* at, DType dtype, double value);
  void see(const std::byte* at, size_t bytes, bool writes);

 private:
  // A block's bytes, with a double for every two of them.
  struct Block {
    std::byte* bytes = nullptr;
    std::vector<double> wide;
  };
  const Block& block_of(const std::byte* at) const;
  std::byte* bytes_of(BufferRange range) const;

  std::unique_ptr<Backend> inner_;
  std::vector<Block> blocks_;
  mutable size_t latest_ = 0;  // the block of the last access
  DeclaredBytes declared_;
  std::vector<vulkan::Use> may_touch_;  // by the call that runs
  std::string_view kernel_;
  uint64_t accesses_ = 0;
  std::vector<std::string> culprits_;
};

}  // namespace rw::test
