// A call as a list of shader modules, in order, and the scratch memory that they share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

constexpr uint64_t divide_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}
constexpr uint64_t multiple_of(uint64_t b, uint64_t a) {
  return divide_up(a, b) * b;
}

// A binding of a pass: one of the call's bindings, or a range of the workspace.
struct Operand {
  static constexpr int workspace = -1;
  int binding = workspace;
  DType dtype = DType::f32;
  uint64_t offset = 0, size = 0;  // bytes, of the workspace
  Access access = Access::read;

  Operand as(Access how) const {
    Operand same = *this;
    same.access = how;
    return same;
  }
};
// Returns the call's binding, for reading.
inline Operand operand(const KernelCall& call, int binding) {
  return {binding, call.bindings[static_cast<size_t>(binding)].dtype};
}
inline Operand written(const Operand& o) {
  return o.as(Access::write);
}

struct Pass {
  std::string kernel;
  std::array<Operand, 8> operands;
  size_t operand_count = 0;
  std::array<std::byte, 124> params;
  size_t params_size = 0;
  std::array<uint32_t, 3> threads = {1, 1, 1};
  std::vector<uint32_t> variant;
  double flops = 0;
};

class Passes : public Preparation {
 public:
  // Reserves scratch memory for `count` elements, alive until the last pass.
  Operand scratch(uint64_t count, DType dtype) {
    const Operand o{Operand::workspace, dtype, workspace_bytes, count * size_of(dtype)};
    workspace_bytes = multiple_of(256, workspace_bytes + o.size);
    return o;
  }

  template <class Params>
  void add(std::string kernel, std::initializer_list<Operand> operands, const Params& params,
           std::array<uint32_t, 3> threads, std::vector<uint32_t> variant = {}, double flops = 0) {
    add(std::move(kernel), std::span(operands.begin(), operands.size()),
        std::as_bytes(std::span(&params, 1)), threads, std::move(variant), flops);
  }
  template <class Params>
  void add(std::string kernel, std::initializer_list<Operand> operands, const Params& params,
           uint64_t threads, std::vector<uint32_t> variant = {}, double flops = 0) {
    add(std::move(kernel), operands, params, {static_cast<uint32_t>(threads), 1, 1},
        std::move(variant), flops);
  }
  // Adds a module with the call's bindings and parameters.
  void add_whole(std::string kernel, const KernelCall& call, uint64_t threads,
                 std::vector<uint32_t> variant) {
    std::array<Operand, 8> operands;
    for (size_t i = 0; i < call.bindings.size(); ++i)
      operands[i] = operand(call, static_cast<int>(i)).as(call.bindings[i].access);
    add(std::move(kernel), std::span(operands.data(), call.bindings.size()), call.params,
        {static_cast<uint32_t>(threads), 1, 1}, std::move(variant), call.flops);
  }

  std::span<const Pass> list() const { return list_; }
  double flops() const {
    double sum = 0;
    for (const Pass& pass : list_) sum += pass.flops;
    return sum;
  }

 private:
  void add(std::string kernel, std::span<const Operand> operands, std::span<const std::byte> params,
           std::array<uint32_t, 3> threads, std::vector<uint32_t> variant, double flops) {
    Pass& pass = list_.emplace_back();
    pass.kernel = std::move(kernel);
    pass.operand_count = operands.size();
    std::copy(operands.begin(), operands.end(), pass.operands.begin());
    pass.params_size = params.size();
    std::copy(params.begin(), params.end(), pass.params.begin());
    pass.threads = threads;
    pass.variant = std::move(variant);
    pass.flops = flops;
  }

  std::vector<Pass> list_;
};

}  // namespace rw::vulkan
