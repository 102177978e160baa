// Lookahead (Zhang et al. 2019) around any optimizer.
#pragma once

#include <memory>

#include "base/optimizer.h"

namespace rw {

// ValueError unless every > 0 and alpha in (0, 1].
struct LookaheadOptions {
  uint32_t every = 5;  // updates of the optimizer between two steps of the slow weights
  float alpha = 0.5f;  // how far a step goes
};

// Follows the optimizer by itself, as Ema: after every `every`-th update slow += alpha * (parameter
// - slow), and the parameters begin again from there. The slow weights begin at the parameters as
// they are now. The optimizer's own state goes on.
class Lookahead {
 public:
  explicit Lookahead(Optimizer& optimizer, const LookaheadOptions& options = {});

  // For checkpoints: "lookahead.NAME" and when it began. Views.
  Optimizer::NamedState state() const;
  void load_state(const Optimizer::NamedState& saved);

 private:
  class Slow;
  std::shared_ptr<Slow> slow_;
};

}  // namespace rw
