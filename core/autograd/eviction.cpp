// Segments that keep what vjps read until memory is wanted, drop what is cheapest to make again,
// and make it again value by value (Kirisame et al. 2021, "Dynamic tensor rematerialization").
#include "rewind/core/autograd/eviction.h"

#include <algorithm>

#include "rewind/core/autograd/replay.h"

namespace rw {

namespace {

// Values of one storage: they are dropped together.
struct Candidate {
  std::vector<uint64_t> ids;
  double cost = 0;
  uint64_t bytes = 0, used = 0;
  const Storage* storage = nullptr;
};

constexpr size_t most_ancestors = 64;  // looked at for the cost of one value

}  // namespace

// Cost of making a value of `record` again, with what of its ancestors was dropped too.
double Rematerializer::cost(int64_t index) const {
  std::vector<int64_t> work = {index};
  std::unordered_set<int64_t> seen = {index};
  double sum = 0;
  for (size_t next = 0; next < work.size() && next < most_ancestors; ++next) {
    const Record& record = tape_.at(work[next]);
    sum += record.cost.total();
    for (const Edge& edge : record.inputs)
      if (!at_hand(edge) && seen.insert(edge.record).second) work.push_back(edge.record);
  }
  return sum;
}

bool Rematerializer::at_hand(const Edge& edge) const {
  return segment_.kept.contains(edge.id) || segment_.externals.contains(edge.id);
}

bool Rematerializer::evict(uint64_t wanted) {
  std::unordered_map<const Storage*, Candidate> all;
  for (const auto& [id, kept] : segment_.kept) {
    const auto& storage = kept.value.tensor.impl().storage;
    Candidate& c = all[storage.get()];
    c.storage = storage.get();
    c.ids.push_back(id);
    c.bytes = storage->range().size;
    c.used = std::max(c.used, kept.used);
  }
  std::vector<std::pair<double, Candidate*>> order;
  for (auto& [storage, c] : all) {
    // Somebody else's handle keeps the storage alive: dropping ours would free nothing.
    const auto& some = segment_.kept.at(c.ids.front()).value.tensor.impl().storage;
    bool ours = some.use_count() == static_cast<long>(c.ids.size());
    for (const uint64_t id : c.ids)
      ours &= segment_.kept.at(id).value.tensor.pointer().use_count() == 1;
    if (!ours) continue;
    for (const uint64_t id : c.ids) c.cost += cost(segment_.kept.at(id).record);
    const auto staleness = static_cast<double>(tape_.segments_.now() - c.used + 1);
    order.emplace_back((c.cost + 1) / (static_cast<double>(c.bytes) * staleness), &c);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->storage->id()) <
           std::pair(b.first, b.second->storage->id());
  });
  // A little more than wanted at a time: looking at all values again costs more.
  uint64_t freed = 0, held = 0;
  for (const auto& [storage, c] : all) held += c.bytes;
  wanted = std::max(wanted, held / 32);
  for (const auto& [score, c] : order) {
    if (freed >= wanted) break;
    freed += c->bytes;
    for (const uint64_t id : c->ids) segment_.kept.erase(id);
    ++tape_.evictions_;
  }
  return freed > 0;
}

bool evict(Tape& tape, uint64_t bytes) {
  for (int s = 0; s < tape.segments().size(); ++s)
    if (tape.segments()[s].evicts && Rematerializer(tape, s).evict(bytes)) return true;
  return false;
}

Saved Rematerializer::take(const Edge& edge) {
  if (const auto kept = segment_.kept.find(edge.id); kept != segment_.kept.end()) {
    kept->second.used = tape_.segments_.tick();
    return kept->second.value;
  }
  return segment_.externals.at(edge.id).value;
}

// Makes the value of `edge`, and first whatever it needs. What the records on the stack found at
// hand is pinned, so that making their other inputs cannot drop it again.
void Rematerializer::make(const Edge& wanted) {
  struct Frame {
    int64_t record;
    std::vector<Saved> pinned;
  };
  std::vector<Frame> stack;
  stack.push_back({wanted.record, {}});
  while (!stack.empty()) {
    Frame& frame = stack.back();
    const Record& record = tape_.at(frame.record);
    if (!record.op || !segment_.contains(frame.record)) fail_missing(wanted);
    frame.pinned.clear();
    const Edge* missing = nullptr;
    for (const Edge& edge : record.inputs) {
      if (at_hand(edge))
        frame.pinned.push_back(take(edge));
      else if (!missing)
        missing = &edge;
    }
    if (missing) {
      stack.push_back({missing->record, {}});
      continue;
    }
    run(frame.record, frame.pinned);
    stack.pop_back();
  }
}

void Rematerializer::run(int64_t index, std::span<const Saved> pinned) {
  const Record& record = tape_.at(index);
  const OpScope scope(record.op->name);
  std::vector<Tensor> inputs;
  for (const Saved& value : pinned) inputs.push_back(replay_input(value));
  std::vector<Tensor> outputs = run_forward(*record.op, record.attrs, inputs);
  ++tape_.replayed_records_;
  for (size_t k = 0; k < outputs.size(); ++k) {
    outputs[k].impl().id = record.outputs[k].id;
    segment_.kept[record.outputs[k].id] = {Saved::of(outputs[k]), index, tape_.segments_.tick()};
  }
}

void Rematerializer::prepare(Record& record) {
  const PhaseScope phase(Phase::replay);
  each_saved(record, [&](const Edge& edge, Saved& saved) {
    if (!at_hand(edge)) make(edge);
    saved = take(edge);
  });
}

void Rematerializer::forget(const Record& record) {
  for (const Edge& edge : record.outputs) segment_.kept.erase(edge.id);
}

}  // namespace rw
