#include "optim/lookahead.h"

#include "core/tensor/launch.h"
#include "core/tensor/primitives.h"

namespace rw {

// The optimizer announces its updates to this, as to Ema's.
class Lookahead::Slow : public UpdateObserver {
 public:
  Slow(const Optimizer& optimizer, uint32_t every, float alpha)
      : every_(every),
        alpha_(alpha),
        slots_(optimizer.parameters().slots()),
        control_(optimizer.control()) {
    check(every > 0, "lookahead", "every must be positive, got 0");
    check(alpha > 0 && alpha <= 1, "lookahead", "alpha must be in (0, 1], got {}", alpha);
    optimizer.parameters().check_whole("lookahead");
    const PurposeScope purpose(Purpose::optimizer);
    for (const FlatParameters::Slab& slab : optimizer.parameters().slabs())
      pairs_.push_back({slab.parameters, copy_of(slab.parameters, DType::f32)});
    start_ = optimizer.copy_updates("lookahead");
  }

  void before_update() override {}

  void after_update() override {
    const OpScope scope("lookahead");
    for (const Pair& pair : pairs_) {
      const kernels::AverageParams p{.offset = {},
                                     .n = count32(pair.slow.numel(), "lookahead"),
                                     .every = every_,
                                     .alpha = alpha_};
      launch("lookahead", {inout(pair.slow), inout(pair.parameters), in(start_), in(control_)}, p,
             {.threads = {flat_threads(p.n), 1, 1}});
    }
  }

  Optimizer::NamedState state() const {
    Optimizer::NamedState all = {{"lookahead.start", start_}};
    for (const FlatParameters::Slot& slot : slots_)
      all.emplace_back("lookahead." + slot.name,
                       FlatParameters::view(pairs_[slot.slab].slow, slot));
    return all;
  }

 private:
  struct Pair {
    Tensor parameters, slow;  // a slab and its slow weights
  };
  const uint32_t every_;
  const float alpha_;
  std::vector<FlatParameters::Slot> slots_;
  std::vector<Pair> pairs_;
  Tensor control_;  // the optimizer's
  Tensor start_;    // f32 [1]: updates done when it began
};

Lookahead::Lookahead(Optimizer& optimizer, uint32_t every, float alpha)
    : slow_(std::make_shared<Slow>(optimizer, every, alpha)) {
  optimizer.add_observer(slow_);
}

Optimizer::NamedState Lookahead::state() const {
  return slow_->state();
}

void Lookahead::load_state(const Optimizer::NamedState& saved) {
  Optimizer::copy_state(saved, state());
}

}  // namespace rw
