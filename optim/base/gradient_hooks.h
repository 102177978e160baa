// Gradients of an optimizer's parameters as backward completes them.
#pragma once

#include <functional>
#include <vector>

#include "parameters.h"

namespace rw {

// While it lives, `take(i, parameter)` is called for slot number `i` when its grad() is complete
// (Tensor::register_post_accumulate_grad_hook).
class GradientHooks {
 public:
  // What is given the gradient.
  using Take = std::function<void(size_t slot, const Tensor& parameter)>;

  GradientHooks() = default;  // none
  GradientHooks(const std::vector<FlatParameters::Slot>& slots, const Take& take) {
    for (size_t i = 0; i < slots.size(); ++i)
      hooks_.push_back(slots[i].parameter.register_post_accumulate_grad_hook(
          [take, i](const Tensor& parameter) { take(i, parameter); }));
  }
  ~GradientHooks() {
    for (HookHandle& hook : hooks_) hook.remove();
  }
  GradientHooks(GradientHooks&&) = default;
  GradientHooks& operator=(GradientHooks&& other) noexcept {
    hooks_.swap(other.hooks_);  // those that were here go with `other`
    return *this;
  }

 private:
  std::vector<HookHandle> hooks_;
};

}  // namespace rw
