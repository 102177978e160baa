#include "rewind/core/autograd/checkpoint.h"

#include <algorithm>

#include "rewind/core/base/environment.h"

namespace rw {

CheckpointScope::CheckpointScope(bool enabled, SavePolicy policy) {
  if (!enabled || !grad_enabled() || !context().techniques.segments) return;
  if (Tape::current()->observer()) return;  // segments are set by a plan
  tape_ = Tape::current();
  segment_ = tape_->open_segment(std::move(policy));
}

CheckpointScope::~CheckpointScope() {
  if (tape_) tape_->close_segment(segment_);
}

bool checkpoints_blocks() {
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
