#include "core/segment.h"

namespace rw {

CheckpointScope::CheckpointScope(bool enabled) {
  if (!enabled || !grad_enabled()) return;
  tape_ = Tape::current();
  segment_ = tape_->open_segment();
}

CheckpointScope::~CheckpointScope() {
  if (tape_) tape_->close_segment(segment_);
}

}  // namespace rw
