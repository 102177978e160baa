#include "optim/accumulation/gradient_window.h"

#include <utility>

#include "core/tensor/primitives.h"

namespace rw {

void GradientWindow::take(const Slots& slots) {
  kept_.clear();
  for (const FlatParameters::Slot& slot : slots) {
    TensorImpl& impl = slot.parameter.impl();
    kept_.push_back({std::exchange(impl.grad, {}), std::exchange(impl.grad_place, {}), {}});
  }
}

void GradientWindow::take_rests(const Slots& slots) {
  for (size_t i = 0; i < kept_.size(); ++i)
    kept_[i].rest = std::exchange(slots[i].parameter.impl().grad_place, {});
}

void GradientWindow::give_back(const Slots& slots) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    TensorImpl& impl = slots[i].parameter.impl();
    impl.grad = std::move(kept_[i].sum);
    impl.grad_place = std::move(kept_[i].place);
  }
  kept_.clear();
}

// A dispatch or two per slab.
void GradientWindow::widen(const Slots& slots) {
  const auto slab_of = [](const Tensor& part) {
    const auto elements =
        static_cast<int64_t>(part.impl().storage->bytes() / size_of(part.dtype()));
    return make_view(part, {elements}, {1}, 0);
  };
  for (size_t i = 0; i < kept_.size(); ++i) {
    TensorImpl& impl = slots[i].parameter.impl();
    if (i == 0 || slots[i].slab != slots[i - 1].slab) {
      const Tensor wide = slab_of(impl.grad_place);
      copy_into(slab_of(kept_[i].place), wide);
      if (kept_[i].rest) accumulate(slab_of(kept_[i].rest), wide, -1);
    }
    impl.grad = kept_[i].sum ? impl.grad_place : Tensor();
  }
  kept_.clear();
}

void GradientWindow::clear() {
  kept_.clear();
  collects_ = false;
}

Tensor GradientWindow::sum(const Slots& slots, size_t i) const {
  return holds_them() ? kept_[i].sum : slots[i].parameter.grad();
}

Tensor GradientWindow::rest(size_t i) const {
  return holds_them() && kept_[i].sum ? kept_[i].rest : Tensor();
}

Tensor GradientWindow::begin_sum(const Slots& slots, size_t i) {
  Kept& kept = kept_[i];
  const PurposeScope purpose(Purpose::gradient);
  const Tensor& p = slots[i].parameter;
  kept.sum = kept.place ? kept.place : empty(p.shape(), DType::f32, p.device().shared_from_this());
  return kept.sum;
}

void GradientWindow::fold(const FlatParameters& parameters, GradientTable& table,
                          const Tensor& control) {
  for (size_t i = 0; i < parameters.runs().size(); ++i) {
    const FlatParameters::Run& run = parameters.runs()[i];
    const Tensor sums =
        make_view(kept_[run.first_slot].place, {run.elements.size}, {1}, run.elements.offset);
    for (const GradientTable::Part& part : table.parts(i))
      launch("window_fold", {inout(sums), in(part.gradients), in(table.table()), in(control)},
             kernels::WindowFoldParams{
                 .offset = {}, .first = part.first, .rows = part.rows, .shift = table.shift()},
             {.threads = {part.rows << table.shift(), 1, 1}});
  }
  for (size_t i = 0; i < kept_.size(); ++i)
    if (parameters.slots()[i].parameter.grad().defined()) kept_[i].sum = kept_[i].place;
}

void GradientWindow::collect(const Tensor& parameter, size_t i) {
  if (!collects_) return;
  const OpScope scope("accumulate");
  const Tensor gradient = dense(std::exchange(parameter.impl().grad, {}));
  Kept& kept = kept_[i];
  kept.sum = kept.place;
  const uint32_t n = count32(parameter.numel(), "accumulate");
  if (n == 0) return;
  launch("window_add", {inout(kept.sum), inout(kept.rest ? kept.rest : kept.sum), in(gradient)},
         kernels::WindowAddParams{.offset = {}, .n = n},
         {.threads = {flat_threads(n), 1, 1}, .variant = {kept.rest ? 1u : 0u}});
}

}  // namespace rw
