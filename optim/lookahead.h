// Lookahead (Zhang et al. 2019) around any optimizer.
#pragma once

#include <memory>

#include "base/optimizer.h"

namespace rw {

// Follows the optimizer by itself, like Ema: after every `every`-th update slow += alpha *
// (parameter - slow), and the parameters restart from there. The slow weights start at the current
// parameters. The optimizer's own state continues.
class Lookahead {
 public:
  // The slow weights step at every `every`-th update of the optimizer, by `alpha` of the way.
  // ValueError unless every > 0 and alpha in (0, 1].
  explicit Lookahead(Optimizer& optimizer, uint32_t every = 5, float alpha = 0.5f);

  // For checkpoints: "lookahead.NAME" and when it began. Views.
  Optimizer::NamedState state() const;
  void load_state(const Optimizer::NamedState& saved);

 private:
  class Slow;
  std::shared_ptr<Slow> slow_;
};

}  // namespace rw
