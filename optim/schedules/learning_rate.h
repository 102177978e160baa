// Learning rates that follow the batch size of an update.
#pragma once

#include <cstdint>
#include <string_view>

namespace rw {

// How a learning rate that suits one batch size is converted for another.
enum class LearningRateRule : uint8_t {
  none,    // it stays as it is
  linear,  // as the batch: for SGD, also with momentum (Goyal et al. 2017)
  // As its square root: for Adam and others that divide by a root of mean squares (Malladi et al.
  // 2022, Granziol et al. 2022); for SGD it keeps the variance of an update (Krizhevsky 2014).
  square_root
};

// The rule that a text names: none, linear or sqrt. ValueError for another text.
LearningRateRule parse_learning_rate_rule(std::string_view text);

// `base`, the learning rate that suits updates from `reference` samples, for updates from `batch`
// samples: base * batch / reference (linear), or base * sqrt(batch / reference). Samples of an
// update are those of all its micro-batches: with Accumulate(optimizer, n) n times the micro-batch.
// ValueError unless base >= 0 is finite and both batches are positive.
//
// Each rule says that twice the batch takes the same way in fewer updates, which holds only while
// the noise of the gradients is larger than their mean. It fails
// - for the first updates, when the loss bends most: rise to the new rate (Schedule's warmup);
// - beyond the critical batch, about where noise and mean are alike (McCandlish et al. 2018): there
//   a larger batch makes better updates, not longer ones, and the new rate diverges;
// - linear for Adam, whose updates do not grow as the gradient does; square_root for plain SGD,
//   where it is safe and learns less per epoch.
float scale_lr(float base, int64_t batch, int64_t reference, LearningRateRule rule);

}  // namespace rw
