// Checkpoint segments: drop activations in forward, replay them in backward (Chen et al. 2016).
// Gradients are bit-equal to the plain run: replay runs the same records with the same kernels,
// random counters are in the records, and side effects (running statistics) are not records.
#pragma once

#include <utility>

#include "core/tape.h"

namespace rw {

// Scope form: what is recorded while it lives is one segment. Nests to any depth.
//   { auto segment = checkpoint(); x = block(x); }
class [[nodiscard]] CheckpointScope {
 public:
  explicit CheckpointScope(bool enabled = true);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  std::shared_ptr<Tape> tape_;
  int segment_ = -1;
};

inline CheckpointScope checkpoint() { return CheckpointScope(); }

// Function form: y = function(arguments...) as one segment.
template <class F, class... Args>
auto checkpoint(F&& function, Args&&... arguments) {
  CheckpointScope scope;
  return std::forward<F>(function)(std::forward<Args>(arguments)...);
}

}  // namespace rw
