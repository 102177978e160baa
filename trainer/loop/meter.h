// Losses and hits of a training loop.
#pragma once

#include <utility>

#include "../../data/base/prefetch.h"
#include "../../dist/world/world.h"
#include "../../ops/ops.h"

namespace rw {

// Sums of losses and hits that stay on the device until someone asks.
class Meter {
 public:
  // `loss` is the mean over the targets. `predicted` and `targets` are i32 [n].
  void add(const Tensor& loss, const Tensor& predicted, const Tensor& targets) {
    add(loss, predicted, targets, static_cast<double>(targets.numel()));
  }
  // `count` is the number of targets that count; the others are negative.
  void add(const Tensor& loss, const Tensor& predicted, const Tensor& targets, double count) {
    add(loss, count);
    const NoGrad guard;
    rw::accumulate(sum(cast(equal(predicted, targets), DType::f32)), hits_);
  }
  // Adds the loss alone.
  void add(const Tensor& loss, double count) {
    const NoGrad guard;
    rw::accumulate(loss, loss_, static_cast<float>(count));
    count_ += count;
  }
  // The mean loss and the share of hits since the last read() or clear(), over all ranks. read()
  // waits for the device and the other ranks.
  struct Values {
    double loss = 0;      // mean
    double accuracy = 0;  // hits over targets
    double count = 0;     // targets
  };
  Values peek() const {
    const double count = sum_over(world(), count_);
    return {sum_over(world(), loss_.item()) / count, sum_over(world(), hits_.item()) / count,
            count};
  }
  Values read() {
    const Values values = peek();
    clear();
    return values;
  }
  void clear() {
    fill_(loss_, 0);
    fill_(hits_, 0);
    count_ = 0;
  }

 private:
  Tensor loss_ = zeros({}), hits_ = zeros({});
  double count_ = 0;
};

// Returns the mean loss and the share of hits over the batches of `loader`, in evaluation mode. A
// thread prepares the batches, and ranks share them. `steps` has a model, a meter and
// evaluate(batch).
template <class Steps, class Loader>
Meter::Values evaluate_all(Steps& steps, Loader&& loader) {
  const NoGrad guard;
  steps.model.eval();
  steps.meter.clear();
  using Batch = decltype(loader.batch(0, 0));
  Prefetcher<Batch> batches([&loader, next = int64_t{world().rank()}]() mutable {
    const int64_t i = std::exchange(next, next + world().size());
    return i < loader.batches() ? std::optional<Batch>(loader.batch(0, i)) : std::nullopt;
  });
  while (const std::optional<Batch> batch = batches.next()) steps.evaluate(*batch);
  return steps.meter.read();
}

}  // namespace rw
