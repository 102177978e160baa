#include "rewind/core/autograd/replay.h"

#include <algorithm>

namespace rw {

Tensor replay_input(const Saved& value) {
  const TensorImpl& impl = value.tensor.impl();
  check<AutogradError>(
      impl.storage->version() == value.version, "checkpoint",
      "inputs of a segment must not change between forward and replay, {}{} was written to",
      value.tensor.str(), impl.name.empty() ? "" : fmt::format(" ('{}')", impl.name));
  return value.tensor.detach();
}

void fail_missing(const Edge& value) {
  fail<AutogradError>("checkpoint",
                      "a value of shape {} is missing in replay: it was freed with its record",
                      value.shape.str());
}

// Whether replay gave the bits that the forward gave, where the tape verifies that.
void Replay::verify(const Record& record, std::span<const Tensor> outputs) const {
  for (size_t k = 0; k < record.hashes.size() && k < outputs.size(); ++k)
    check<AutogradError>(
        content_hash(outputs[k]) == record.hashes[k], "checkpoint",
        "replay of '{}' must give the bits that the forward gave, output {} ({}) differs: the "
        "op is not a pure function of its attributes and inputs",
        record.op->name, k, outputs[k].str());
}

bool Replay::reached(int64_t record) const {
  const auto i = static_cast<size_t>(record - tape_.base_);
  return i < reachable_.size() && reachable_[i];
}

bool Replay::at_hand(uint64_t id) const {
  return segment_.externals.contains(id) || segment_.kept.contains(id);
}

// Ids of the values that must be there afterwards: saved values of the segment's own records, and
// what its child segments read from outside themselves.
Replay::Ids Replay::wanted() const {
  Ids ids;
  for (int64_t i = segment_.first; i < segment_.last; ++i) {
    const Record& record = tape_.at(i);
    if (!record.op || record.segment != id_ || !reached(i)) continue;
    each_saved(record, [&](const Edge& edge, const Saved&) { ids.insert(edge.id); });
  }
  for (const int child : segment_.children)
    for (const auto& [id, external] : tape_.segments_[child].externals)
      if (!external.value.tensor.defined()) ids.insert(id);
  return ids;
}

// The records to run, in order: those that make needed values, and what these read in turn.
std::vector<int64_t> Replay::plan(Ids needed) const {
  std::vector<int64_t> order;
  for (int64_t i = segment_.last - 1; i >= segment_.first; --i) {
    const Record& record = tape_.at(i);
    const bool makes =
        record.op &&
        std::any_of(record.outputs.begin(), record.outputs.end(),
                    [&](const Edge& out) { return needed.contains(out.id) && !at_hand(out.id); });
    if (!makes) continue;
    order.push_back(i);
    for (const Edge& edge : record.inputs) needed.insert(edge.id);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

Saved Replay::at_hand_value(uint64_t id) const {
  if (const auto kept = segment_.kept.find(id); kept != segment_.kept.end())
    return kept->second.value;
  const auto external = segment_.externals.find(id);
  return external == segment_.externals.end() ? Saved{} : external->second.value;
}

// An input of a record to replay; the last reader gets the only handle, so that it may overwrite.
Tensor Replay::take(const Edge& edge, bool last_use) {
  if (const auto found = values_.find(edge.id); found != values_.end()) {
    if (!last_use) return found->second;
    Tensor value = std::move(found->second);
    values_.erase(found);
    return value;
  }
  const Saved value = at_hand_value(edge.id);
  if (!value.tensor.defined()) fail_missing(edge);
  return replay_input(value);
}

void Replay::execute(const std::vector<int64_t>& records, const Ids& keep) {
  std::unordered_map<uint64_t, int64_t> last_reader;
  for (int64_t i : records)
    for (const Edge& edge : tape_.at(i).inputs) last_reader[edge.id] = i;
  for (int64_t i : records) {
    const Record& record = tape_.at(i);
    const OpScope scope(record.op->name);
    std::vector<Tensor> inputs;
    for (size_t k = 0; k < record.inputs.size(); ++k) {
      const Edge& edge = record.inputs[k];
      bool again = keep.contains(edge.id) || last_reader[edge.id] != i;
      for (size_t j = k + 1; j < record.inputs.size(); ++j) again |= record.inputs[j].id == edge.id;
      inputs.push_back(take(edge, !again));
    }
    std::vector<Tensor> outputs = run_forward(*record.op, record.attrs, inputs);
    inputs.clear();
    ++tape_.replayed_records_;
    verify(record, outputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Edge& edge = record.outputs[k];
      check<AutogradError>(outputs[k].shape() == edge.shape && outputs[k].dtype() == edge.dtype,
                           "checkpoint",
                           "replay of {} must give what the forward gave, got {} and {} {}",
                           record.op->name, outputs[k].str(), name(edge.dtype), edge.shape.str());
      if (keep.contains(edge.id) || last_reader.contains(edge.id)) {
        outputs[k].impl().id = edge.id;
        values_[edge.id] = std::move(outputs[k]);
      }
    }
  }
}

void Replay::hand_out(const Ids& keep) {
  const auto value = [&](uint64_t id) -> Saved {
    if (const auto found = values_.find(id); found != values_.end())
      return {found->second, found->second.impl().storage->version()};
    return keep.contains(id) ? at_hand_value(id) : Saved{};
  };
  for (int64_t i = segment_.first; i < segment_.last; ++i) {
    Record& record = tape_.at(i);
    if (!record.op || record.segment != id_ || !reached(i)) continue;
    each_saved(record, [&](const Edge& edge, Saved& saved) { saved = value(edge.id); });
  }
  for (const int child : segment_.children)
    for (auto& [id, external] : tape_.segments_[child].externals)
      if (!external.value.tensor.defined()) external.value = value(id);
}

void Replay::run() {
  const PhaseScope phase(Phase::replay);
  const SegmentScope scope(id_);
  const Ids keep = wanted();
  execute(plan(keep), keep);
  hand_out(keep);
  values_.clear();
  segment_.replayed = true;
}

}  // namespace rw
