#include "core/autograd/replay.h"

#include <algorithm>

#include "core/autograd/eviction.h"

namespace rw {

namespace {

// Returns the value as an input of a record that is replayed, after a check that nobody wrote to
// it since it was read.
Tensor unchanged(const Saved& value) {
  const TensorImpl& impl = value.tensor.impl();
  if (!value.is_intact())
    fail<AutogradError>(
        "checkpoint",
        "inputs of a segment must not change between forward and replay, {}{} was written to",
        value.tensor, impl.name.empty() ? "" : fmt::format(" ('{}')", impl.name));
  return value.tensor.detach();
}

// A replay must give values like those of the forward, and the same bits where the tape verifies
// replays.
void check_outputs(const Record& record, std::span<const Tensor> outputs) {
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Edge& edge = record.outputs[k];
    check<AutogradError>(outputs[k].shape() == edge.shape && outputs[k].dtype() == edge.dtype,
                         "checkpoint",
                         "replay of {} must give what the forward gave, got {} and {} {}",
                         record.op->name, outputs[k], name(edge.dtype), edge.shape);
    if (k < record.hashes.size())
      check<AutogradError>(
          content_hash(outputs[k]) == record.hashes[k], "checkpoint",
          "replay of '{}' must give the bits that the forward gave, output {} ({}) differs: the "
          "op is not a pure function of its attributes and inputs",
          record.op->name, k, outputs[k]);
  }
}

}  // namespace

// Returns the values that must be there afterwards: saved values of the segment's own records,
// values that its child segments read from outside themselves, and values that are kept for the
// child segments.
Replay::Makers Replay::wanted() const {
  Makers all;
  for (int64_t i = segment_.first; i < segment_.last; ++i) {
    const Record& record = records_[i];
    if (!record.op || record.segment != number_ || !record.reached) continue;
    each_saved(record, [&](const Edge& edge) { all[edge.key()] = edge.record; });
  }
  for (const int child : segment_.children)
    for (const auto& [key, external] : segments_[child].externals)
      if (!external.value.tensor.defined()) all[key] = external.record;
  for (const auto& [key, record] : segment_.replay_keeps)
    if (is_kept_for_child(record)) all[key] = record;
  return all;
}

// Tells whether a segment inside this one has yet to replay values of the record.
bool Replay::is_kept_for_child(int64_t record) const {
  const Record* maker = records_.find(record);
  return maker && maker->segment != number_ && !segments_[maker->segment].replayed;
}

// Returns the records to run, in order: those that make values that are wanted and not at hand, and
// those that make the inputs of these in turn.
std::vector<int64_t> Replay::plan(const Makers& wanted) const {
  std::vector<int64_t> order;
  std::vector<bool> is_there;  // by record of the segment
  const auto want = [&](const ValueKey& key, int64_t maker) {
    if (segment_.has(key)) return;
    if (!segment_.contains(maker) || !records_.find(maker))
      fail<AutogradError>(
          "checkpoint", "a value is missing in replay: it was freed with the record that made it");
    const Edge& made = *std::ranges::find(records_[maker].outputs, key.id, &Edge::id);
    if (made.version != key.version)
      fail<AutogradError>(
          "checkpoint",
          "values of a segment must not change while a replay may read them, the {} {} of '{}' was "
          "written to after it was read; write before it is read, or leave it out of the segment",
          name(made.dtype), made.shape, records_[maker].op->name);
    const auto place = static_cast<size_t>(maker - segment_.first);
    is_there.resize(std::max(is_there.size(), place + 1));
    if (is_there[place]) return;
    is_there[place] = true;
    order.push_back(maker);
  };
  for (const auto& [key, maker] : wanted) want(key, maker);
  for (size_t next = 0; next < order.size(); ++next)
    for (const Edge& edge : records_[order[next]].inputs) want(edge.key(), edge.record);
  std::ranges::sort(order);
  return order;
}

// Values that the plan counts on must not be evicted while it runs.
void Replay::pin(const Makers& wanted, const std::vector<int64_t>& plan) {
  const auto hold = [&](const ValueKey& key) {
    if (segment_.has(key)) values_.try_emplace(key, unchanged(value(key)));
  };
  for (const auto& [key, maker] : wanted) hold(key);
  for (const int64_t i : plan)
    for (const Edge& edge : records_[i].inputs) hold(edge.key());
}

uint64_t Replay::make(const Makers& wanted) {
  const std::vector<int64_t> records = plan(wanted);
  if (segment_.evicts) pin(wanted, records);
  Makers last_reader;
  for (const int64_t i : records)
    for (const Edge& edge : records_[i].inputs) last_reader[edge.key()] = i;
  for (const int64_t i : records) run_record(i, wanted, last_reader);
  return records.size();
}

void Replay::run_record(int64_t index, const Makers& wanted, const Makers& last_reader) {
  const Record& record = records_[index];
  const OpScope scope(record.op->name);
  std::vector<Tensor> inputs;
  inputs.reserve(record.inputs.size());
  for (size_t k = 0; k < record.inputs.size(); ++k) {
    const Edge& edge = record.inputs[k];
    bool again = wanted.contains(edge.key()) || last_reader.at(edge.key()) != index;
    for (size_t j = k + 1; j < record.inputs.size(); ++j)
      again |= record.inputs[j].key() == edge.key();
    inputs.push_back(take(edge, !again));
  }
  std::vector<Tensor> outputs = run_forward(*record.op, record.attrs, inputs);
  inputs.clear();
  check_outputs(record, outputs);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const ValueKey key = record.outputs[k].key();
    outputs[k].impl().id = key.id;
    if (segment_.evicts) segment_.kept[key] = {Saved::of(outputs[k]), index, segments_.tick()};
    if (wanted.contains(key) || last_reader.contains(key)) values_[key] = std::move(outputs[k]);
  }
}

// Takes an input of a record to replay. The last reader gets the only handle, so that it may
// overwrite the value.
Tensor Replay::take(const Edge& edge, bool is_last_use) {
  const auto found = values_.find(edge.key());
  if (found == values_.end()) return unchanged(value(edge.key()));
  if (!is_last_use) return found->second;
  Tensor taken = std::move(found->second);
  values_.erase(found);
  return taken;
}

// Returns a value that was made or is at hand, undefined if it is neither.
Saved Replay::value(const ValueKey& key) const {
  if (const auto made = values_.find(key); made != values_.end())
    return {made->second, made->second.impl().storage->version()};
  if (const auto kept = segment_.kept.find(key); kept != segment_.kept.end())
    kept->second.used = segments_.tick();
  return segment_.value(key);
}

// Gives a record the values that its vjp reads, unless the program has written into them since, as
// in a pass without segments.
void Replay::give(Record& record) {
  each_saved(record, [&](Edge& edge) {
    edge.saved = value(edge.key());
    if (!edge.is_overwritten()) return;
    const std::string& called = edge.saved.tensor.impl().name;
    fail<AutogradError>(record.op->name,
                        "{}{} must not change between forward and backward, it was written to",
                        edge.saved.tensor, called.empty() ? "" : fmt::format(" ('{}')", called));
  });
}

void Replay::hand_out() {
  for (int64_t i = segment_.first; i < segment_.last; ++i) {
    Record& record = records_[i];
    if (!record.op || record.segment != number_ || !record.reached) continue;
    give(record);
  }
  for (const int child : segment_.children)
    for (auto& [key, external] : segments_[child].externals)
      if (!external.value.tensor.defined()) external.value = value(key);
  for (const auto& [key, record] : segment_.replay_keeps) {
    if (!is_kept_for_child(record)) continue;
    for (int s = records_[record].segment; s != number_; s = segments_[s].parent)
      segments_[s].kept[key] = {value(key), record};
  }
}

uint64_t Replay::keep_only(const Makers& wanted) {
  const PhaseScope phase(Phase::replay);
  const SegmentScope scope(number_);
  int64_t first_missing = segment_.last;
  for (const auto& [key, maker] : wanted)
    if (!segment_.has(key)) first_missing = std::min(first_missing, maker);
  const std::unordered_set<const Storage*> own = own_storages(segment_);
  std::erase_if(segment_.kept, [&](const auto& item) {
    const auto& [key, kept] = item;
    const bool is_ours = own.contains(kept.value.tensor.impl().storage.get());
    return !kept.is_only_copy &&
           (!wanted.contains(key) || (is_ours && kept.record >= first_missing));
  });
  segment_.evicts = false;  // no value that is made is dropped, and the last reader may overwrite
                            // it
  uint64_t ran = 0;
  try {
    ran = make(wanted);
  } catch (...) {
    segment_.evicts = true;
    throw;
  }
  segment_.evicts = true;
  for (const auto& [key, value] : values_)
    segment_.kept[key] = {Saved::of(value), wanted.at(key), segments_.tick()};
  return ran;
}

uint64_t Replay::run() {
  const PhaseScope phase(Phase::replay);
  const SegmentScope scope(number_);
  const uint64_t ran = make(wanted());
  hand_out();
  segment_.replayed = true;
  return ran;
}

uint64_t Replay::run_for(Record& record) {
  const PhaseScope phase(Phase::replay);
  const SegmentScope scope(number_);
  Makers all;
  each_saved(record, [&](const Edge& edge) { all[edge.key()] = edge.record; });
  const uint64_t ran = make(all);
  give(record);
  return ran;
}

}  // namespace rw
