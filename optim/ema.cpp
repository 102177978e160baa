#include "rewind/optim/ema.h"

#include "rewind/core/ops/ops.h"
#include "rewind/core/tensor/launch.h"

namespace rw {

// What the optimizer announces its updates to. Its Ema owns it, the optimizer only knows of it.
class Ema::Averages : public UpdateObserver {
 public:
  Averages(const Optimizer& optimizer, const EmaOptions& options)
      : options_(options), slots_(optimizer.parameters().slots()), control_(optimizer.control()) {
    check(options.decay >= 0 && options.decay < 1, "ema", "the decay must be in [0, 1), got {}",
          options.decay);
    const PurposeScope purpose(Purpose::optimizer);
    const auto copy = [](const Tensor& source) {
      Tensor t = empty(source.shape(), DType::f32, source.device().shared_from_this());
      copy_into(source, t);
      return t;
    };
    for (const FlatParameters::Slab& slab : optimizer.parameters().slabs())
      pairs_.push_back({slab.parameters, copy(slab.parameters)});
    start_ = copy(make_view(control_, {1}, {1}, STATE_UPDATES));
  }

  void before_update() override {
    check<AutogradError>(!is_applied, "ema",
                         "the averages are in the parameters' place; call restore() before step()");
  }

  void after_update() override {
    const OpScope scope("ema");
    for (const Pair& pair : pairs_) {
      const int64_t n = pair.average.numel();
      launch("ema", {inout(pair.average), in(pair.parameters), in(start_), in(control_)},
             kernels::EmaParams{.offset = {},
                                .n = count32(n, "ema"),
                                .decay = options_.decay,
                                .corrected = options_.bias_correction},
             {.threads = {flat_threads(n), 1, 1}});
    }
  }

  void exchange() {
    const OpScope scope("ema");
    for (const Pair& pair : pairs_) {
      const Tensor parked =
          empty(pair.average.shape(), DType::f32, pair.average.device().shared_from_this());
      copy_into(pair.parameters, parked);
      copy_into(pair.average, pair.parameters);
      copy_into(parked, pair.average);
    }
    is_applied = !is_applied;
  }

  Optimizer::NamedState state() const {
    check<AutogradError>(!is_applied, "ema", "call restore() before saving or loading");
    Optimizer::NamedState all = {{"ema.start", start_}};
    for (const FlatParameters::Slot& slot : slots_)
      all.emplace_back("ema." + slot.name, FlatParameters::view(pairs_[slot.slab].average, slot));
    return all;
  }

  bool is_applied = false;

 private:
  struct Pair {
    Tensor parameters, average;  // a slab and its averages
  };
  EmaOptions options_;
  std::vector<FlatParameters::Slot> slots_;
  std::vector<Pair> pairs_;
  Tensor control_;  // the optimizer's
  Tensor start_;    // f32 [1]: updates done when the average began
};

Ema::Ema(Optimizer& optimizer, const EmaOptions& options)
    : averages_(std::make_shared<Averages>(optimizer, options)) {
  optimizer.add_observer(averages_);
}

void Ema::apply() {
  check<AutogradError>(!is_applied(), "ema", "the averages are applied already");
  averages_->exchange();
}

void Ema::restore() {
  check<AutogradError>(is_applied(), "ema", "restore() needs apply() first");
  averages_->exchange();
}

bool Ema::is_applied() const {
  return averages_->is_applied;
}

Optimizer::NamedState Ema::state() const {
  return averages_->state();
}

void Ema::load_state(const Optimizer::NamedState& saved) {
  Optimizer::copy_state(saved, state());
}

}  // namespace rw
