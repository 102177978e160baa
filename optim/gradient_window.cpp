#include "rewind/optim/gradient_window.h"

#include <utility>

#include "rewind/optim/update_rule.h"

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

void GradientWindow::fold(const Slots& slots, const FlatParameters::Run& run,
                          const UpdateTarget& target) {
  const Tensor sums =
      make_view(kept_[run.first_slot].place, {run.elements.size}, {1}, run.elements.offset);
  for (const GradientTable::Part& part : target.parts)
    launch("window_fold", {inout(sums), in(part.gradients), in(target.table), in(target.control)},
           kernels::WindowFoldParams{
               .offset = {}, .first = part.first, .rows = part.rows, .shift = target.shift},
           {.threads = {part.rows << target.shift, 1, 1}});
  for (size_t i = run.first_slot; i < run.first_slot + run.slots; ++i)
    if (slots[i].parameter.grad().defined()) kept_[i].sum = kept_[i].place;
}

Tensor GradientWindow::begin_sum(const Slots& slots, size_t i) {
  Kept& kept = kept_[i];
  const PurposeScope purpose(Purpose::gradient);
  const Tensor& parameter = slots[i].parameter;
  kept.sum = kept.place
                 ? kept.place
                 : empty(parameter.shape(), DType::f32, parameter.device().shared_from_this());
  return kept.sum;
}

Tensor GradientWindow::sum(const Slots& slots, size_t i) const {
  return holds_them() ? kept_[i].sum : slots[i].parameter.grad();
}

}  // namespace rw
