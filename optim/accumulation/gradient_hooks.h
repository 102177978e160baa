// Takes the gradients of an optimizer's parameters as backward completes them.
#pragma once

#include <functional>
#include <vector>

#include "../base/parameters.h"

namespace rw {

// While it lives, `take(i, parameter)` is called for slot number `i` when its grad() is complete
// (Tensor::register_post_accumulate_grad_hook).
class GradientHooks {
 public:
  GradientHooks(const std::vector<FlatParameters::Slot>& slots,
                const std::function<void(size_t slot, const Tensor& parameter)>& take) {
    for (size_t i = 0; i < slots.size(); ++i)
      hooks_.push_back(slots[i].parameter.register_post_accumulate_grad_hook(
          [take, i](const Tensor& parameter) { take(i, parameter); }));
  }
  ~GradientHooks() {
    for (HookHandle& hook : hooks_) hook.remove();
  }
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<HookHandle> hooks_;
};

}  // namespace rw
