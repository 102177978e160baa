#include "core/autograd/segments.h"

#include <algorithm>
#include <utility>

namespace rw {

Segments::Handle Segments::open(int64_t first, SavePolicy policy, bool evicts) {
  Segment segment;
  segment.serial = next_serial_++;
  segment.parent = open_;
  segment.policy = std::move(policy);
  segment.first = first;
  segment.evicts = evicts;
  const int number = size();
  if (open_ >= 0) (*this)[open_].children.push_back(number);
  list_.push_back(std::move(segment));
  open_ = number;
  return {number, list_.back().serial};
}

bool Segments::close(const Handle& segment, int64_t last) {
  int s = open_;
  while (s >= 0 && (*this)[s].serial != segment.serial) s = (*this)[s].parent;
  if (s < 0) return false;  // it was closed with one around it, or the tape was cleared meanwhile
  while (open_ != (*this)[s].parent) {
    Segment& inner = (*this)[open_];
    inner.last = last;
    open_ = inner.parent;
    if (inner.alive == 0) inner.release();
  }
  return true;
}

void Segments::end_open(int64_t last) {
  for (int s = open_; s >= 0; s = (*this)[s].parent) (*this)[s].last = last;
}

bool Segments::is_open(int segment) const {
  int s = open_;
  while (s >= 0 && s != segment) s = (*this)[s].parent;
  return s >= 0;
}

bool Segments::is_inner(const Edge& edge) const {
  return open_ >= 0 && edge.record >= 0 && (*this)[open_].contains(edge.record);
}

// Returns the innermost among `segment` and those around it that made the value, or -1.
int Segments::maker(const Edge& edge, int segment) const {
  while (segment >= 0 && !(edge.record >= 0 && (*this)[segment].contains(edge.record)))
    segment = (*this)[segment].parent;
  return segment;
}

void Segments::take(const Edge& edge, Saved value, bool is_only_copy) {
  if (is_only_copy)
    for (int s = maker(edge, open_); s >= 0; s = (*this)[s].parent)
      (*this)[s].kept[edge.key()] = {value, edge.record, tick(), true};
  else if (is_inner(edge))
    (*this)[open_].kept[edge.key()] = {value, edge.record, tick()};
  if (!is_inner(edge)) hold(edge, value);
}

void Segments::hold(const Edge& edge, const Saved& value) {
  const int outer = maker(edge, open_);
  for (int s = open_; s != outer; s = (*this)[s].parent) {
    External& external = (*this)[s].externals[edge.key()];
    external.record = edge.record;
    ++external.readers;
    if (outer < 0 && !external.value.tensor.defined()) external.value = value;
  }
}

void Segments::keep(const Record& record, int64_t index, std::span<const Tensor> outputs,
                    uint32_t wanted) {
  if (record.op->is_kept) {
    for (int s = open_; s >= 0; s = (*this)[s].parent)
      for (size_t i = 0; i < outputs.size(); ++i)
        (*this)[s].kept[record.outputs[i].key()] = {Saved::of(outputs[i]), index, tick(), true};
    return;
  }
  if (is_evicting()) {  // values that vjps read stay until memory is wanted
    for (size_t i = 0; i < outputs.size(); ++i)
      if (record.saves.output(i))
        (*this)[open_].kept[record.outputs[i].key()] = {Saved::of(outputs[i]), index, tick()};
    return;
  }
  SaveQuery query{record.label(), record.cost, 0, record.op->is_heavy};
  for (const Edge& y : record.outputs)
    query.bytes += static_cast<uint64_t>(y.shape.numel()) * size_of(y.dtype);
  int outermost = -1;
  for (int s = open_; s >= 0; s = (*this)[s].parent) {
    const bool by_policy = (*this)[s].policy && (*this)[s].policy(query);
    if (by_policy) wanted = ~0u;
    if (wanted) outermost = s;
  }
  if (outermost < 0) return;
  for (int s = open_;; s = (*this)[s].parent) {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (i < 32 && (wanted >> i & 1))
        (*this)[s].kept[record.outputs[i].key()] = {Saved::of(outputs[i]), index};
    if (s == outermost) return;
  }
}

void Segments::copy_before_write(const Records& records, const Storage& storage) {
  Tensor copy;  // of the whole storage
  const auto own = [&](const ValueKey& key, Saved& value) {
    if (!value.tensor.defined() || value.tensor.impl().storage.get() != &storage) return;
    if (!value.is_intact()) return;
    const TensorImpl& impl = value.tensor.impl();
    const std::string name = impl.name;
    if (!copy.defined()) {
      copy = empty(storage.shape(), storage.dtype(), storage.device());
      storage.device().copy(storage, 0, *copy.impl().storage, 0, storage.bytes());
    }
    value = Saved::of(make_view(copy, impl.shape, impl.strides, impl.offset));
    value.tensor.impl().id = key.id;
    value.tensor.impl().name = name;
  };
  for (Segment& segment : list_) {
    if (!segment.reads(records, storage)) continue;
    for (auto& [key, external] : segment.externals) own(key, external.value);
    for (auto& [key, kept] : segment.kept)
      if (kept.is_only_copy) own(key, kept.value);
  }
}

void Segments::let_go(const Record& dead) {
  for (const Edge& edge : dead.inputs) {
    const int outer = maker(edge, dead.segment);
    for (int s = dead.segment; s != outer; s = (*this)[s].parent) {
      auto& externals = (*this)[s].externals;
      const auto external = externals.find(edge.key());
      if (external != externals.end() && --external->second.readers == 0) externals.erase(external);
    }
  }
  for (int s = dead.segment; s >= 0; s = (*this)[s].parent)
    for (const Edge& edge : dead.outputs) {
      (*this)[s].kept.erase(edge.key());
      (*this)[s].replay_keeps.erase(edge.key());
    }
}

void Segments::count_record(int segment, int64_t change) {
  for (int s = segment; s >= 0; s = (*this)[s].parent) {
    Segment& around = (*this)[s];
    around.alive += change;
    if (around.alive == 0 && around.last >= 0) around.release();
  }
}

void Segments::clear() {
  list_.clear();
  open_ = -1;
}

Saved Segment::value(const ValueKey& key) const {
  if (keeps(key)) return kept.at(key).value;
  const auto external = externals.find(key);
  return external == externals.end() ? Saved{} : external->second.value;
}

bool Segment::reads(const Records& records, const Storage& storage) const {
  const auto is_read = [&](const Edge& edge) {
    return edge.contents == storage.contents() && edge.version == storage.version();
  };
  const int64_t end = last < 0 ? records.end() : last;
  for (int64_t i = std::max(first, records.begin()); i < end; ++i) {
    const Record* record = records.find(i);
    if (record && !record->op->is_view && std::ranges::any_of(record->inputs, is_read)) return true;
  }
  return false;
}

void Segment::forget(const Record& record, bool for_good) {
  for (const Edge& edge : record.outputs)
    if (const auto found = kept.find(edge.key());
        found != kept.end() && (for_good || !found->second.is_only_copy))
      kept.erase(found);
}

void Segment::release() {
  externals.clear();
  kept.clear();
  replay_keeps.clear();
}

}  // namespace rw
