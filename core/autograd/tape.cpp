#include "core/autograd/tape.h"

#include <algorithm>
#include <unordered_set>

#include "core/autograd/boundaries.h"
#include "core/autograd/eviction.h"
#include "core/autograd/replay.h"
#include "core/tensor/launch.h"

namespace rw {

namespace {

constexpr uint64_t external_root = uint64_t{1} << 63;  // marks content from outside the tape

Edge& add_edge(Edges& edges, const TensorImpl& impl, uint64_t root) {
  Edge& edge = edges.emplace_back();
  edge.id = impl.id;
  edge.record = impl.producer.index;
  edge.slot = impl.producer.slot;
  edge.shape = impl.shape;
  edge.dtype = impl.dtype;
  edge.requires_grad = impl.requires_grad;
  edge.storage = impl.storage->id();
  edge.bytes = impl.storage->range().size;
  edge.contents = impl.storage->contents();
  edge.version = impl.storage->version();
  edge.root = root;
  return edge;
}

Edge& add_input(Record& record, const Tensor& t, Tape& tape) {
  const TensorImpl& impl = t.impl();
  Edge& edge = add_edge(record.inputs, impl, impl.storage->id() | external_root);
  if (edge.record < 0) {
    if (impl.requires_grad) edge.leaf = t;
  } else {
    const std::shared_ptr<Tape>& own = Tape::current();
    const auto& made_on = impl.producer.tape;  // no owner before the other: it is the same one
    check<AutogradError>(
        !made_on.owner_before(own) && !own.owner_before(made_on), op_or("user"),
        "inputs must be recorded on this thread's tape, got one of another thread");
    if (const Record* maker = tape.find(edge.record))
      edge.root = maker->outputs[static_cast<size_t>(edge.slot)].root;
  }
  return edge;
}

}  // namespace

void Tape::append(Record&& record, bool requires_grad, std::span<Tensor> outputs) {
  const int64_t index = end();
  record.outputs.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    TensorImpl& impl = outputs[i].impl();
    impl.requires_grad = requires_grad && is_float(impl.dtype);
    impl.producer = {weak_from_this(), index, static_cast<int>(i)};
    Edge& edge =
        add_edge(record.outputs, impl, record.op->is_view ? record.inputs[0].root : impl.id);
    if (record.saves.output(i) && !in_segment()) edge.saved = Saved::of(outputs[i]);
  }
  record.readers = static_cast<int64_t>(outputs.size());
  if (in_segment())
    for (const Tensor& y : outputs) y.impl().storage->note_writes();
  for (Edge& edge : record.inputs) {
    if (edge.record >= 0) ++records_[edge.record].readers;
    if (in_segment() && edge.saved.tensor.defined())
      segments_.take(edge, std::exchange(edge.saved, {}), is_only_copy(edge));
  }
  if (in_segment() && verify_)
    for (const Tensor& y : outputs) record.hashes.push_back(content_hash(y));
  enter(record, outputs, follower_);
  records_.push_back(std::move(record));
}

// Makes the record a part of the innermost segment.
void Tape::enter(const Record& record, std::span<const Tensor> outputs, Follower* follower) {
  if (in_segment())
    segments_.keep(record, next(), outputs, follower ? follower->kept_outputs() : 0);
  if (follower) follower->after_record(record, outputs);
  count_record(record, 1);
}

void Tape::enter_again(int segment, const ByValue<int64_t>& values, Follower& pass) {
  replayed_records_ += Replay(records_, segments_, segment).keep_only(values);
  const Segment before = std::move(segments_[segment]);
  segments_[segment] = {.serial = before.serial, .first = before.first, .last = before.last};
  for (again_ = before.first; again_ < before.last; ++again_) {
    Record& record = records_[again_];
    if (!record.op) continue;
    pass.before_record(*this, *record.op);
    record.segment = segments_.innermost();
    --alive_;  // enter counts it
    for (size_t k = 0; k < record.inputs.size(); ++k) {
      Edge& edge = record.inputs[k];
      if (!in_segment() && record.saves.input(k)) edge.saved = before.value(edge.key());
      if (in_segment() && (is_only_copy(edge) || !segments_.is_inner(edge)))
        segments_.take(edge, before.value(edge.key()), is_only_copy(edge));
    }
    std::vector<Tensor> outputs;
    for (size_t k = 0; k < record.outputs.size(); ++k) {
      const Saved value = before.value(record.outputs[k].key());
      if (!in_segment() && record.saves.output(k)) record.outputs[k].saved = value;
      outputs.push_back(value.tensor);
    }
    enter(record, outputs, &pass);
  }
  again_ = -1;
}

void Tape::before_write(Storage& storage) {
  if (alive_ > 0) segments_.copy_before_write(records_, storage);
}

bool Tape::is_only_copy(const Edge& edge) const {
  const Record* maker = records_.find(edge.record);
  return edge.record >= 0 &&
         (!maker || maker->outputs[static_cast<size_t>(edge.slot)].version != edge.version);
}

void Tape::count_record(const Record& record, int64_t change) {
  alive_ += change;
  segments_.count_record(record.segment, change);
}

Segments::Handle Tape::open_segment(SavePolicy policy, bool evicts) {
  return segments_.open(next(), std::move(policy), evicts);
}

void Tape::close_segment(const Segments::Handle& segment) {
  if (!segments_.close(segment, next())) return;
  const Segment& closed = segments_[segment.number];
  if (boundaries_on_host() && closed.parent < 0 && !closed.evicts) boundaries_to_host(closed);
  forget_if_empty();
}

void Tape::keep_in_replay(const Segments::Handle& segment, const ValueKey& value) {
  if (segment.number < segments_.size() && segments_[segment.number].serial == segment.serial)
    segments_[segment.number].replay_keeps[value] = next();
}

void Tape::release_handle(int64_t index, int slot) {
  if (std::this_thread::get_id() != owner_) {
    const std::lock_guard lock(foreign_mutex_);
    foreign_.emplace_back(index, slot);
    has_foreign_ = true;
    return;
  }
  Record* record = records_.find(index);
  if (!record) return;
  record->outputs[static_cast<size_t>(slot)].released = end();
  if (--record->readers == 0 && !running_) free_records({index});
}

void Tape::take_foreign_releases() {
  if (!has_foreign_) return;
  std::vector<std::pair<int64_t, int>> released;
  {
    const std::lock_guard lock(foreign_mutex_);
    released.swap(foreign_);
    has_foreign_ = false;
  }
  for (const auto& [index, slot] : released) release_handle(index, slot);
}

const std::shared_ptr<GradHooks>& Tape::hooks(int64_t index, int slot) {
  std::shared_ptr<GradHooks>& hooks = hooks_[{index, slot}];
  if (!hooks) hooks = std::make_shared<GradHooks>();
  return hooks;
}

void Tape::free_hooks(int64_t index) {
  if (hooks_.empty()) return;
  hooks_.erase(hooks_.lower_bound({index, 0}), hooks_.lower_bound({index + 1, 0}));
}

void Tape::free_records(std::vector<int64_t> worklist) {
  while (!worklist.empty()) {
    const int64_t index = worklist.back();
    const Record& record = records_[index];
    free_hooks(index);
    worklist.pop_back();
    if (!record.op) continue;
    for (const Edge& edge : record.inputs)
      if (Record* maker = records_.find(edge.record); maker && --maker->readers == 0)
        worklist.push_back(edge.record);
    const Record dead = records_.take(index);
    segments_.let_go(dead);
    count_record(dead, -1);
  }
  forget_if_empty();
}

void Tape::forget_if_empty() {
  if (alive_ == 0 && !in_segment() && !running_) clear();
}

void Tape::clear() {
  alive_ = 0;
  thread_state().writes.clear();
  segments_.clear();
  hooks_.clear();
  records_.clear();
}

bool Tape::evict(uint64_t bytes) {
  for (int s = 0; s < segments_.size(); ++s) {
    if (!segments_[s].evicts) continue;
    const uint64_t dropped = drop_values(records_, segments_[s], segments_.now(), bytes);
    evictions_ += dropped;
    if (dropped) return true;
  }
  return false;
}

TapeStats Tape::stats() const {
  TapeStats stats{static_cast<uint64_t>(alive_), 0, 0, static_cast<uint64_t>(segments_.size())};
  std::unordered_set<const Storage*> seen;
  const auto count = [&](const Tensor& t) {
    if (!t.defined()) return;
    ++stats.saved_tensors;
    if (seen.insert(t.impl().storage.get()).second) stats.saved_bytes += t.impl().storage->bytes();
  };
  for (int64_t i = begin(); i < end(); ++i) {
    for (const Edge& edge : records_[i].inputs) count(edge.saved.tensor);
    for (const Edge& edge : records_[i].outputs) count(edge.saved.tensor);
  }
  for (const Segment& segment : segments_.all()) {
    for (const auto& [key, external] : segment.externals) count(external.value.tensor);
    for (const auto& [key, kept] : segment.kept)
      if (segment.parent < 0 || !segments_[segment.parent].kept.contains(key))
        count(kept.value.tensor);
  }
  return stats;
}

std::vector<Tensor> apply(const Op& op, std::any attrs, std::vector<Tensor> inputs) {
  return detail::apply_to(op, std::move(attrs), inputs);
}

Tensor apply1(const Op& op, std::any attrs, std::vector<Tensor> inputs) {
  return std::move(detail::apply_to(op, std::move(attrs), inputs)[0]);
}

std::vector<Tensor> detail::apply_to(const Op& op, std::any&& attrs, std::span<Tensor> inputs) {
  const OpScope scope(op.name);
  const auto& tape = Tape::current();
  tape->take_foreign_releases();
  check_devices(op.name, inputs);
  bool requires_grad = false;
  uint32_t needs = 0;  // of the first 32 inputs
  for (size_t i = 0; i < inputs.size(); ++i) {
    requires_grad |= inputs[i].requires_grad();
    if (i < 32) needs |= uint32_t{inputs[i].requires_grad()} << i;
  }
  requires_grad &= op.vjp != nullptr;
  const bool records = grad_enabled() && (requires_grad || tape->records_all());
  if (!records) return run_forward(op, attrs, inputs);

  if (tape->end() == 0 && Tape::before_first_record) Tape::before_first_record();
  if (tape->follower()) tape->follower()->before_record(*tape, op);
  Record record;
  record.op = &op;
  record.saves = requires_grad ? op.saves(attrs, needs) : Saves{};
  const Segments& segments = tape->segments();
  record.segment = segments.innermost();
  const SegmentScope segment(record.segment);
  record.inputs.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Edge& edge = add_input(record, inputs[i], *tape);
    if (i < 32 && inputs[i].pointer().use_count() == 1) record.given |= uint32_t{1} << i;
    bool saved = record.saves.input(i);
    // Segments hold values from outside, and inner ones into which the program wrote, since no
    // replay makes these again. Evicting segments keep the values that vjps read, too.
    if (tape->in_segment()) {
      inputs[i].impl().storage->note_writes();
      saved =
          !segments.is_inner(edge) || tape->is_only_copy(edge) || (saved && segments.is_evicting());
    }
    if (saved) edge.saved = Saved::of(inputs[i]);
  }
  for (Tape::Observer* observer : tape->observers()) observer->before_forward(op, inputs);
  const OpCost before = context().queued;
  std::vector<Tensor> outputs = run_forward(op, attrs, inputs);
  record.cost = {context().queued.flops - before.flops, context().queued.bytes - before.bytes};
  record.attrs = std::move(attrs);
  const int64_t index = tape->end();
  tape->append(std::move(record), requires_grad, outputs);
  for (Tape::Observer* observer : tape->observers())
    observer->after_forward(index, *tape->find(index), outputs);
  return outputs;
}

}  // namespace rw
