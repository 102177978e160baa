#include "core/segment.h"

#include <algorithm>

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

SavePolicy save_ops(std::vector<std::string> names) {
  return [names = std::move(names)](const SaveQuery& query) {
    return std::find(names.begin(), names.end(), query.op) != names.end();
  };
}

SavePolicy save_matmuls() {
  return save_ops({"matmul", "linear", "conv2d", "attention", "lstm", "gru", "tied_cross_entropy"});
}

Tape::OpenSegment Tape::open_segment(SavePolicy policy) {
  SegmentRange segment;
  segment.serial = next_serial_++;
  segment.parent = open_;
  segment.policy = std::move(policy);
  segment.first = end();
  const int number = static_cast<int>(segments_.size());
  if (open_ >= 0) segments_[open_].children.push_back(number);
  segments_.push_back(std::move(segment));
  context().segment = open_ = number;
  return {number, segments_.back().serial};
}

void Tape::close_segment(const OpenSegment& segment) {
  int s = open_;
  while (s >= 0 && segments_[s].serial != segment.serial) s = segments_[s].parent;
  if (s < 0) return;  // closed with one around it, or the tape was cleared meanwhile
  while (open_ != segments_[s].parent) {
    SegmentRange& range = segments_[open_];
    range.last = end();
    open_ = range.parent;
    if (range.alive == 0) range.release();
  }
  context().segment = open_;
  forget_if_empty();
}

bool Tape::is_inner(const Edge& edge) const {
  return open_ >= 0 && edge.record >= 0 && segments_[open_].contains(edge.record);
}

// The innermost one of `segment` and those around it that made the value, if any.
int Tape::maker_segment(const Edge& edge, int segment) const {
  while (segment >= 0 && !(edge.record >= 0 && segments_[segment].contains(edge.record)))
    segment = segments_[segment].parent;
  return segment;
}

void Tape::hold(const Edge& edge, const Tensor& value) {
  const int outer = maker_segment(edge, open_);
  for (int s = open_; s != outer; s = segments_[s].parent) {
    External& external = segments_[s].externals[edge.id];
    external.record = edge.record;
    ++external.readers;
    if (outer < 0 && !external.value.tensor.defined()) external.value = Saved::of(value);
  }
}

// Keeps outputs of a record in the segments up to the outermost one that wants them: all of them
// where a policy says so, else those of the plan.
void Tape::keep(const Record& record, std::span<const Tensor> outputs) {
  if (segments_[open_].evicts) return keep_saved(record, outputs);
  SaveQuery query{record.op->name, record.cost, 0};
  for (const Tensor& y : outputs) query.bytes += y.bytes();
  uint32_t wanted = observer_ ? observer_->kept_outputs() : 0;
  int outermost = -1;
  for (int s = open_; s >= 0; s = segments_[s].parent) {
    const bool by_policy = segments_[s].policy && segments_[s].policy(query);
    if (by_policy) wanted = ~0u;
    if (wanted) outermost = s;
  }
  if (outermost < 0) return;
  for (int s = open_;; s = segments_[s].parent) {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (i < 32 && (wanted >> i & 1))
        segments_[s].kept[record.outputs[i].id] = {Saved::of(outputs[i]), end()};
    if (s == outermost) return;
  }
}

// What segments hold for a record that nobody will replay.
void Tape::let_go(const Record& dead) {
  for (const Edge& edge : dead.inputs) {
    const int outer = maker_segment(edge, dead.segment);
    for (int s = dead.segment; s != outer; s = segments_[s].parent) {
      const auto external = segments_[s].externals.find(edge.id);
      if (external != segments_[s].externals.end() && --external->second.readers == 0)
        segments_[s].externals.erase(external);
    }
  }
  for (int s = dead.segment; s >= 0; s = segments_[s].parent)
    for (const Edge& edge : dead.outputs) segments_[s].kept.erase(edge.id);
}

void SegmentRange::release() {
  externals.clear();
  kept.clear();
}

}  // namespace rw
