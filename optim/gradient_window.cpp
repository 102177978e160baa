#include "rewind/optim/gradient_window.h"

#include <utility>

namespace rw {

void GradientWindow::take(const Slots& slots) {
  kept_.clear();
  for (const FlatParameters::Slot& slot : slots) {
    TensorImpl& impl = slot.parameter.impl();
    kept_.push_back({std::exchange(impl.grad, {}), std::exchange(impl.grad_place, {})});
  }
}

void GradientWindow::give_back(const Slots& slots) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    TensorImpl& impl = slots[i].parameter.impl();
    impl.grad = std::move(kept_[i].sum);
    impl.grad_place = std::move(kept_[i].place);
  }
  kept_.clear();
}

Tensor GradientWindow::sum(const Slots& slots, size_t i) const {
  return holds_them() ? kept_[i].sum : slots[i].parameter.grad();
}

}  // namespace rw
