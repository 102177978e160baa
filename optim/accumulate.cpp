#include "rewind/optim/accumulate.h"

#include <cmath>

namespace rw {

Accumulate::Accumulate(Optimizer&& optimizer, uint32_t micro_batches)
    : Optimizer(std::move(optimizer)), micro_batches_(micro_batches) {
  check(micro_batches > 0, "accumulate", "at least one micro-batch per update is needed, got 0");
  if (micro_batches > 1) set_weight_copies(WeightCopyUse::outside_segments);
}

void Accumulate::backward(const Tensor& loss, float weight) {
  check(weight >= 0 && std::isfinite(weight), "accumulate", "the weight must be >= 0, got {}",
        weight);
  check<AutogradError>(!has_gradient_, "accumulate",
                       "backward() must run once per step(); add the losses of a micro-batch");
  if (position_ == 0) {
    Optimizer::zero_grad();
    if (micro_batches_ > 1) place_gradients();
    unit_ = 0;
    total_ = 0;
  }
  if (weight == 0) {  // an empty micro-batch: its mean loss may well be NaN
    has_gradient_ = true;
    return;
  }
  // Relative weights keep scaled gradients as small as those of the plain optimizer, and equal
  // weights exact.
  if (unit_ == 0) unit_ = weight;
  Optimizer::backward(loss, weight / unit_);
  total_ += weight / unit_;
  has_gradient_ = true;
}

bool Accumulate::step() {
  check<AutogradError>(has_gradient_, "accumulate", "step() needs a backward(loss) before it");
  has_gradient_ = false;
  ++position_;
  device().end_step_soon();  // a micro-batch repeats, as a step does
  return position_ == micro_batches_ && flush();
}

bool Accumulate::flush() {
  check<AutogradError>(!has_gradient_, "accumulate",
                       "step() must end the last micro-batch before flush()");
  position_ = 0;
  if (total_ == 0) return false;
  return update(static_cast<float>(std::exchange(total_, 0)));
}

void Accumulate::zero_grad() {
  if (position_ == 0 && !has_gradient_) Optimizer::zero_grad();
}

void Accumulate::check_between_windows() const {
  check<AutogradError>(position_ == 0 && !has_gradient_, "accumulate",
                       "the state can be saved and loaded only between updates, got {} of {} "
                       "micro-batches; flush() first",
                       position_, micro_batches_);
}

Optimizer::NamedState Accumulate::state() const {
  check_between_windows();
  return Optimizer::state();
}

void Accumulate::load_state(const NamedState& saved) {
  check_between_windows();
  Optimizer::load_state(saved);
}

}  // namespace rw
