// Checkpoint segments: drop activations in forward, replay them in backward (Chen et al. 2016).
// Gradients are bit-equal to the plain run: a replay runs the same records with the same kernels,
// random counters are in the records, and side effects (running statistics) are not records.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tape.h"

namespace rw {

// Scope form: the ops recorded while it lives are one segment. Scopes nest to any depth. A scope
// that ends before scopes inside it ends these, too.
//   { auto segment = checkpoint(); x = block(x); }
class [[nodiscard]] CheckpointScope {
 public:
  explicit CheckpointScope(bool enabled = true, SavePolicy policy = {});
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  std::shared_ptr<Tape> tape_;
  Segments::Handle segment_;
};

// A segment that keeps nothing.
inline CheckpointScope checkpoint() {
  return CheckpointScope();
}
// With a policy: outputs for which it asks are kept instead of recomputed (selective
// checkpointing).
//   auto segment = checkpoint(save_matmuls());
inline CheckpointScope checkpoint(SavePolicy policy) {
  return CheckpointScope(true, std::move(policy));
}

// Tells whether modules of this thread make checkpoint segments of their blocks by themselves, as
// $REWIND_RECOMPUTE=block (or 1) says, or the innermost of the scopes below.
bool checkpoints_blocks();
// While it lives, this thread's modules make such segments, or, if `on` is false, do not.
class [[nodiscard]] BlockCheckpoints {
 public:
  explicit BlockCheckpoints(bool on = true);
  ~BlockCheckpoints();
  BlockCheckpoints(const BlockCheckpoints&) = delete;
  BlockCheckpoints& operator=(const BlockCheckpoints&) = delete;

 private:
  std::optional<bool> outer_;
};

// Policies; any function of a SaveQuery (op, cost, bytes, is_heavy) is one. They also hold for
// nested segments. This one is the default: everything is recomputed.
inline SavePolicy save_nothing() {
  return {};
}

SavePolicy
save_matmuls();  // outputs of matrix products, convolutions, attention and recurrent layers
// Keeps the outputs of the ops of these names, and values that checkpoint_name() gave one of them.
SavePolicy save_ops(std::vector<std::string> names);

// Function form: y = function(arguments...) as one segment.
template <class F, class... Args>
requires std::invocable<F, Args...>
auto checkpoint(F&& function, Args&&... arguments) {
  CheckpointScope scope;
  return std::forward<F>(function)(std::forward<Args>(arguments)...);
}

}  // namespace rw
