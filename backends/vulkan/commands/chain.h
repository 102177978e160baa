// Kernels that follow each other, joined into one: a chain (shaders/params/chain.h).
//
// Only a call that overwrites its input joins. An op overwrites an input if it has the last handle
// of it (reuse_or_empty), so nobody reads the value in between, and values that are saved for
// gradients are never lost. So joining needs no look ahead and no liveness: a call is held back
// until the next one shows whether it continues the chain.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../../../core/backend/backend.h"
#include "../../../shaders/params.h"
#include "hazards.h"

namespace rw::vulkan {

// A call with everything to which it refers.
class OwnedCall {
 public:
  explicit OwnedCall(const KernelCall& call);
  KernelCall call() const&;  // valid as long as this object
  KernelCall call() const&& = delete;

 private:
  std::string kernel_;
  std::array<Binding, 8> bindings_;
  std::array<std::byte, 128> params_;
  std::array<uint32_t, 8> variant_;
  size_t binding_count_, params_size_, variant_count_;
  std::array<uint32_t, 3> threads_;
  double flops_;
};

// A dense tensor, as a kernel binds it.
struct ChainValue {
  Binding binding;
  uint32_t offset = 0;  // in elements
  bool operator==(const ChainValue& other) const;
};

struct ChainStep;  // a call, as a step on one of its inputs

class Chain {
 public:
  // Tells whether a call of this module may begin a chain, or be a step of one.
  static bool may_start(std::string_view module);
  // Returns a chain that begins with this call, or nothing if no chain may.
  static std::optional<Chain> start(const KernelCall& call);

  // Tells whether the call overwrites, elementwise, the value that the chain has written; then it
  // becomes the chain's last step.
  bool join(const KernelCall& call);

  // Tells whether the call may run before the chain: it is far smaller, and neither writes memory
  // that the other uses. Updates of running statistics come between a batch norm and its
  // activation.
  bool lets_by(const KernelCall& call) const;

  // Returns the one kernel that does all of it, or the call itself if no other has joined.
  OwnedCall joined() const;

 private:
  explicit Chain(const KernelCall& call) : first_(call), flops_(call.flops) { note(call); }
  void note(const KernelCall& call);  // notes the memory that it uses
  bool reads_result(const ChainValue& operand) const;
  bool add(const ChainStep& step);
  template <class P>
  OwnedCall make(const std::string& kernel, P params, std::vector<ChainValue> values,
                 std::initializer_list<uint32_t> more = {}) const;
  OwnedCall product() const;

  OwnedCall first_;
  uint32_t n_ = 0;
  uint32_t row_ = 0;  // elements of a row of a matrix product, which begins the chain; 0: none does
  double flops_;
  ChainValue in_, out_;
  std::vector<uint32_t> codes_;
  std::vector<ChainValue> operands_;
  kernels::ChainSteps steps_{};
  HazardTracker uses_;
};

}  // namespace rw::vulkan
