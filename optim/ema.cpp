#include "optim/ema.h"

#include "core/tensor/launch.h"
#include "ops/ops.h"

namespace rw {

// The optimizer announces its updates to this. The average owns it, and the optimizer only refers
// to it.
class ParameterAverage::Averages : public UpdateObserver {
 public:
  // `name` is that of the states. The kernel gets decay, kind and every.
  static std::shared_ptr<Averages> follow(Optimizer& optimizer, const char* name,
                                          const kernels::AverageParams& how) {
    auto averages = std::make_shared<Averages>(optimizer, name, how);
    optimizer.add_observer(averages);
    return averages;
  }

  Averages(const Optimizer& optimizer, const char* name, const kernels::AverageParams& how)
      : name_(name),
        how_(how),
        slots_(optimizer.parameters().slots()),
        control_(optimizer.control()) {
    optimizer.parameters().check_whole(name);
    const PurposeScope purpose(Purpose::optimizer);
    const auto copy = [](const Tensor& source) {
      Tensor t = empty(source.shape(), DType::f32, source.device().shared_from_this());
      copy_into(source, t);
      return t;
    };
    for (const FlatParameters::Slab& slab : optimizer.parameters().slabs())
      pairs_.push_back({slab.parameters, slab.low, copy(slab.parameters)});
    start_ = optimizer.copy_updates(name);
  }

  void check_update() override {
    check<AutogradError>(!is_applied, name_,
                         "the averages are in the parameters' place; call restore() before step()");
  }
  void before_update() override {}

  void after_update() override {
    const OpScope scope(name_);
    for (const Pair& pair : pairs_) {
      kernels::AverageParams p = how_;
      p.n = count32(pair.average.numel(), name_);
      launch("ema", {inout(pair.average), in(pair.parameters), in(start_), in(control_)}, p,
             {.threads = {flat_threads(p.n), 1, 1}});
    }
  }

  // Swaps the parameters for the averages, or back.
  void exchange(bool to_averages) {
    if (to_averages)
      check<AutogradError>(!is_applied, name_, "the averages are applied already");
    else
      check<AutogradError>(is_applied, name_, "restore() needs apply() first");
    const OpScope scope(name_);
    for (const Pair& pair : pairs_) {
      const Tensor parked =
          empty(pair.average.shape(), DType::f32, pair.average.device().shared_from_this());
      copy_into(pair.parameters, parked);
      copy_into(pair.average, pair.parameters);
      copy_into(parked, pair.average);
      if (pair.low) copy_into(pair.parameters, pair.low);
    }
    is_applied = !is_applied;
  }

  Optimizer::NamedState state() const {
    check<AutogradError>(!is_applied, name_, "call restore() before saving or loading");
    const std::string prefix = std::string(name_) + ".";
    Optimizer::NamedState all = {{prefix + "start", start_}};
    for (const FlatParameters::Slot& slot : slots_)
      all.emplace_back(prefix + slot.name, FlatParameters::view(pairs_[slot.slab].average, slot));
    return all;
  }

  bool is_applied = false;

 private:
  struct Pair {
    Tensor parameters, low, average;  // a slab, its 16-bit parameters or none, and its averages
  };
  const char* name_;
  kernels::AverageParams how_;
  std::vector<FlatParameters::Slot> slots_;
  std::vector<Pair> pairs_;
  Tensor control_;  // the optimizer's
  Tensor start_;    // f32 [1]: updates done when the average began
};

ParameterAverage::ParameterAverage(std::shared_ptr<Averages> averages)
    : averages_(std::move(averages)) {}

void ParameterAverage::apply() {
  averages_->exchange(true);
}

void ParameterAverage::restore() {
  averages_->exchange(false);
}

bool ParameterAverage::is_applied() const {
  return averages_->is_applied;
}

Optimizer::NamedState ParameterAverage::state() const {
  return averages_->state();
}

void ParameterAverage::load_state(const Optimizer::NamedState& saved) {
  Optimizer::copy_state(saved, state());
}

namespace {

kernels::AverageParams follow_by(const EmaOptions& options) {
  check(options.decay >= 0 && options.decay < 1, "ema", "the decay must be in [0, 1), got {}",
        options.decay);
  const uint32_t kind = options.bias_correction ? AVERAGE_CORRECTED : AVERAGE_DECAY;
  return {.offset = {}, .every = 1, .decay = options.decay, .kind = kind};
}

kernels::AverageParams follow_every(uint32_t every) {
  check(every > 0, "swa", "every must be positive, got 0");
  return {.offset = {}, .every = every, .kind = AVERAGE_EQUAL};
}

}  // namespace

Ema::Ema(Optimizer& optimizer, const EmaOptions& options)
    : ParameterAverage(Averages::follow(optimizer, "ema", follow_by(options))) {}

Swa::Swa(Optimizer& optimizer, uint32_t every)
    : ParameterAverage(Averages::follow(optimizer, "swa", follow_every(every))) {}

}  // namespace rw
