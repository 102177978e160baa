// The account of losses and hits of a training loop.
#pragma once

#include "core/ops.h"

namespace rw {

// Sums of losses and hits that stay on the device until someone asks.
class Meter {
 public:
  // `loss`: the mean over the targets. `predicted` and `targets` i32 [n].
  void add(const Tensor& loss, const Tensor& predicted, const Tensor& targets) {
    const NoGrad guard;
    const auto n = static_cast<float>(targets.numel());
    rw::accumulate(loss, loss_, n);
    rw::accumulate(sum(cast(equal(predicted, targets), DType::f32)), hits_);
    count_ += n;
  }
  // Mean loss and share of hits since the last read; waits for the device.
  struct Values {
    double loss = 0, accuracy = 0;
  };
  Values read() {
    const Values values{loss_.item() / count_, hits_.item() / count_};
    fill_(loss_, 0);
    fill_(hits_, 0);
    count_ = 0;
    return values;
  }

 private:
  Tensor loss_ = zeros({}), hits_ = zeros({});
  double count_ = 0;
};

}  // namespace rw
