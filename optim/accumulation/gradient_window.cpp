#include "optim/accumulation/gradient_window.h"

#include <utility>

namespace rw {

void GradientWindow::take() {
  for (const FlatParameters::Slot& slot : slots()) {
    TensorImpl& impl = slot.parameter.impl();
    kept_.push_back({std::exchange(impl.grad, {}), std::exchange(impl.grad_place, {}), {}});
  }
}

void GradientWindow::give_back() {
  for (size_t i = 0; i < kept_.size(); ++i) {
    TensorImpl& impl = slots()[i].parameter.impl();
    impl.grad = std::move(kept_[i].sum);
    impl.grad_place = std::move(kept_[i].place);
  }
  kept_.clear();
}

Tensor GradientWindow::sum(size_t i) const {
  return kept_.empty() ? slots()[i].parameter.grad() : kept_[i].sum;
}

Tensor GradientWindow::begin_sum(size_t i) {
  Kept& kept = kept_[i];
  const PurposeScope purpose(Purpose::gradient);
  const Tensor& p = slots()[i].parameter;
  kept.sum = kept.place ? kept.place : empty(p.shape(), DType::f32, p.device().shared_from_this());
  return kept.sum;
}

}  // namespace rw
