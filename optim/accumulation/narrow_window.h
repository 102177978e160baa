// Windows whose sums have 16 bits.
#pragma once

#include <optional>

#include "../../core/tensor/launch.h"
#include "../../core/tensor/primitives.h"
#include "gradient_hooks.h"
#include "gradient_window.h"

namespace rw {

// Adds each gradient to its sum when backward has completed it, and drops it. Compensated sums have
// what rounding leaves out beside them (Kahan 1965).
class NarrowWindow : public GradientWindow {
 public:
  NarrowWindow(const FlatParameters& parameters, DType dtype, bool is_compensated)
      : GradientWindow(parameters), dtype_(dtype), is_compensated_(is_compensated) {
    parameters.place_gradients(dtype);
    take();
    if (!is_compensated) return;
    parameters.place_gradients(dtype);
    for (size_t i = 0; i < kept_.size(); ++i)
      kept_[i].rest = std::exchange(slots()[i].parameter.impl().grad_place, {});
  }
  std::string name() const override {
    return fmt::format("accumulate.{}{}_window", is_compensated_ ? "compensated_" : "",
                       rw::name(dtype_));
  }
  void begin_pass(bool) override {
    parameters_.drop_gradients();
    hooks_.emplace(slots(), [this](size_t slot, const Tensor& p) { collect(slot, p); });
  }
  void end_pass() override { hooks_.reset(); }
  void end_micro_batch(const std::vector<float>&) override {}
  // The update reads f32, which takes a dispatch or two per slab.
  void finish() override {
    parameters_.drop_gradients();
    parameters_.place_gradients();
    for (size_t i = 0; i < kept_.size(); ++i) {
      TensorImpl& impl = slots()[i].parameter.impl();
      if (i == 0 || slots()[i].slab != slots()[i - 1].slab) {
        const Tensor wide = slab_of(impl.grad_place);
        copy_into(slab_of(kept_[i].place), wide);
        if (kept_[i].rest) accumulate(slab_of(kept_[i].rest), wide, -1);
      }
      impl.grad = kept_[i].sum ? impl.grad_place : Tensor();
    }
    kept_.clear();
  }

 private:
  static Tensor slab_of(const Tensor& part) {
    const auto elements =
        static_cast<int64_t>(part.impl().storage->bytes() / size_of(part.dtype()));
    return make_view(part, {elements}, {1}, 0);
  }
  void collect(size_t slot, const Tensor& parameter) {
    const OpScope scope("accumulate");
    const Tensor gradient = dense(std::exchange(parameter.impl().grad, {}));
    Kept& kept = kept_[slot];
    kept.sum = kept.place;
    const uint32_t n = count32(parameter.numel(), "accumulate");
    if (n == 0) return;
    launch("window_add", {inout(kept.sum), inout(kept.rest ? kept.rest : kept.sum), in(gradient)},
           kernels::WindowAddParams{.offset = {}, .n = n},
           {.threads = {flat_threads(n), 1, 1}, .variant = {kept.rest ? 1u : 0u}});
  }

  const DType dtype_;
  const bool is_compensated_;
  std::optional<GradientHooks> hooks_;  // while a pass runs
};

}  // namespace rw
