#include "core/autograd/checkpoint.h"

#include <algorithm>

#include "core/base/environment.h"
#include "core/base/thread_state.h"

namespace rw {

CheckpointScope::CheckpointScope(bool enabled, SavePolicy policy) {
  if (!enabled || !grad_enabled() || !context().drops_segments) return;
  if (Tape::current()->follower()) return;  // a plan sets the segments
  tape_ = Tape::current();
  segment_ = tape_->open_segment(std::move(policy));
}

CheckpointScope::~CheckpointScope() {
  if (tape_) tape_->close_segment(segment_);
}

BlockCheckpoints::BlockCheckpoints(bool on)
    : outer_(std::exchange(thread_state().checkpoints_blocks, on)) {}

BlockCheckpoints::~BlockCheckpoints() {
  thread_state().checkpoints_blocks = outer_;
}

bool checkpoints_blocks() {
  if (const std::optional<bool> set = thread_state().checkpoints_blocks) return *set;
  const std::string wanted = env_text("REWIND_RECOMPUTE");
  return wanted == "block" || wanted == "1";
}

SavePolicy save_ops(std::vector<std::string> names) {
  return [names = std::move(names)](const SaveQuery& query) {
    return std::find(names.begin(), names.end(), query.op) != names.end();
  };
}

SavePolicy save_matmuls() {
  return [](const SaveQuery& query) { return query.is_heavy; };
}

}  // namespace rw
