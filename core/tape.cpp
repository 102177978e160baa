#include "core/tape.h"

#include <algorithm>

#include "core/launch.h"
#include "core/replay.h"

namespace rw {

namespace {

const Tensor& checked(const std::vector<Saved>& saved, int slot, const Record& record, const char* side) {
  const bool there = slot < static_cast<int>(saved.size()) && saved[slot].tensor.defined();
  check<AutogradError>(there, record.op->name, "the vjp reads {} {}, which is not saved; declare it in saves",
                       side, slot);
  const TensorImpl& impl = saved[slot].tensor.impl();
  check<AutogradError>(impl.storage->version() == saved[slot].version, record.op->name,
                       "{} {}{} {} must not change between forward and backward, it was written to",
                       side, slot, impl.name.empty() ? "" : fmt::format(" ('{}')", impl.name),
                       saved[slot].tensor.str());
  return saved[slot].tensor;
}

constexpr uint64_t external_root = uint64_t{1} << 63;  // content from outside the tape

Edge edge_of(const TensorImpl& impl, uint64_t root) {
  return {.id = impl.id,
          .record = impl.producer.index,
          .slot = impl.producer.slot,
          .shape = impl.shape,
          .dtype = impl.dtype,
          .requires_grad = impl.requires_grad,
          .leaf = {},
          .storage = impl.storage->id(),
          .bytes = impl.storage->range().size,
          .root = root};
}

Edge input_edge(const Tensor& t, Tape& tape) {
  const TensorImpl& impl = t.impl();
  Edge edge = edge_of(impl, impl.storage->id() | external_root);
  if (edge.record < 0) {
    if (impl.requires_grad) edge.leaf = t;
  } else {
    check<AutogradError>(impl.producer.tape.lock().get() == &tape, OpScope::current(),
                         "inputs must be recorded on this thread's tape, got one of another thread");
    if (const Record* maker = tape.find(edge.record)) edge.root = maker->outputs[static_cast<size_t>(edge.slot)].root;
  }
  return edge;
}

std::shared_ptr<Tape>& current_tape() {
  thread_local auto tape = std::make_shared<Tape>();
  return tape;
}

// Output `slot` of a record that is about to be appended. An op that ran no kernel made a view.
Edge output_edge(const Tensor& t, const Record& record) {
  Edge edge = edge_of(t.impl(), t.impl().id);
  if (record.cost.total() == 0)
    for (const Edge& input : record.inputs)
      if (input.storage == edge.storage) edge.root = input.root;
  return edge;
}

}  // namespace

const Tensor& Record::input(int i) const { return checked(saved_inputs, i, *this, "input"); }
Tensor Record::take_input(int i) const {
  const Tensor& value = input(i);
  return is_last_read ? std::move(saved_inputs[static_cast<size_t>(i)].tensor) : value;
}

Tensor Record::gradient_so_far(int i) const {
  const Edge& edge = inputs[static_cast<size_t>(i)];
  if (!edge.requires_grad || edge.record >= 0) return {};
  const Tensor own = edge.leaf.grad();
  const Tensor& gradient = own.defined() ? own : edge.leaf.impl().grad_place;
  const bool usable = gradient.defined() && gradient.dtype() == DType::f32 &&
                      gradient.is_contiguous() && gradient.shape() == edge.shape;
  return usable ? gradient : Tensor();
}

const Tensor& Record::output(int i) const { return checked(saved_outputs, i, *this, "output"); }

const std::shared_ptr<Tape>& Tape::current() { return current_tape(); }

std::shared_ptr<Tape> Tape::exchange_current(std::shared_ptr<Tape> tape) {
  return std::exchange(current_tape(), std::move(tape));
}

const Record* Tape::find(int64_t index) const {
  if (index < base_ || index >= end()) return nullptr;
  const Record& record = records_[static_cast<size_t>(index - base_)];
  return record.op ? &record : nullptr;
}

void Tape::append(Record record, std::span<const Tensor> held, std::span<Tensor> outputs) {
  const int64_t index = end();
  record.segment = open_;
  const bool requires_grad = record.outputs.empty() ? false : record.outputs[0].requires_grad;
  record.outputs.clear();
  record.saved_outputs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    TensorImpl& impl = outputs[i].impl();
    if (record.saves.output(i) && open_ < 0) record.saved_outputs[i] = Saved::of(outputs[i]);
    impl.requires_grad = requires_grad && is_float(impl.dtype);
    impl.producer = {weak_from_this(), index, static_cast<int>(i)};
    record.outputs.push_back(output_edge(outputs[i], record));
  }
  record.readers = static_cast<int64_t>(outputs.size());
  for (size_t i = 0; i < record.inputs.size(); ++i) {
    if (record.inputs[i].record >= 0) ++at(record.inputs[i].record).readers;
    if (!held[i].defined()) continue;
    const Edge& edge = record.inputs[i];
    if (is_inner(edge)) segments_[open_].kept[edge.id] = {Saved::of(held[i]), edge.record, ++clock_};
    else hold(edge, held[i]);
  }
  if (open_ >= 0) keep(record, outputs);
  if (open_ >= 0 && verify_)
    for (const Tensor& y : outputs) record.hashes.push_back(content_hash(y));
  if (observer_) observer_->after_record(record);
  records_.push_back(std::move(record));
  count_record(open_, 1);
}

// One record more or less, in `segment` and those around it.
void Tape::count_record(int segment, int64_t change) {
  alive_ += change;
  for (int s = segment; s >= 0; s = segments_[s].parent) {
    SegmentRange& range = segments_[s];
    range.alive += change;
    if (range.alive == 0 && range.last >= 0) range.release();
  }
}

void Tape::release_handle(int64_t index, int slot) {
  if (std::this_thread::get_id() != owner_) {
    const std::lock_guard lock(foreign_mutex_);
    foreign_.emplace_back(index, slot);
    has_foreign_ = true;
    return;
  }
  if (index < base_ || index >= end()) return;
  Record& record = at(index);
  if (!record.op) return;
  record.outputs[static_cast<size_t>(slot)].released = end();
  if (--record.readers == 0 && !running_) free_records({index});
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

void Tape::free_records(std::vector<int64_t> worklist) {
  while (!worklist.empty()) {
    Record& record = at(worklist.back());
    worklist.pop_back();
    if (!record.op) continue;
    for (const Edge& edge : record.inputs)
      if (edge.record >= base_ && at(edge.record).op && --at(edge.record).readers == 0)
        worklist.push_back(edge.record);
    Record dead;
    std::swap(dead, record);  // handles die after the record left the tape
    let_go(dead);
    count_record(dead.segment, -1);
  }
  forget_if_empty();
}

void Tape::forget_if_empty() {
  if (alive_ == 0 && open_ < 0 && !running_) clear();
}

void Tape::clear() {
  base_ = end();  // indices are never used twice: old handles may still name them
  alive_ = 0;
  segments_.clear();
  context().segment = open_ = -1;
  const auto dead = std::move(records_);
  records_.clear();
}

TapeStats Tape::stats() const {
  TapeStats stats{static_cast<uint64_t>(alive_), 0, 0, segments_.size()};
  std::unordered_set<const Storage*> seen;
  const auto count = [&](const Tensor& t) {
    if (!t.defined()) return;
    ++stats.saved_tensors;
    if (seen.insert(t.impl().storage.get()).second) stats.saved_bytes += t.impl().storage->bytes();
  };
  for (const Record& record : records_) {
    for (const Saved& s : record.saved_inputs) count(s.tensor);
    for (const Saved& s : record.saved_outputs) count(s.tensor);
  }
  for (const SegmentRange& segment : segments_) {
    for (const auto& [id, external] : segment.externals) count(external.value.tensor);
    for (const auto& [id, kept] : segment.kept)
      if (segment.parent < 0 || !segments_[segment.parent].kept.contains(id)) count(kept.value.tensor);
  }
  return stats;
}

std::vector<Tensor> apply(const Op& op, std::any attrs, std::vector<Tensor> inputs) {
  const OpScope scope(op.name);
  const auto& tape = Tape::current();
  tape->take_foreign_releases();
  check_devices(op.name, inputs);
  bool requires_grad = false;
  for (const Tensor& t : inputs) requires_grad |= t.requires_grad();
  requires_grad &= op.vjp != nullptr;
  const bool records = grad_enabled() && (requires_grad || tape->records_all());
  if (!records) return run_forward(op, attrs, inputs);

  if (tape->observer()) tape->observer()->before_record(*tape, op);
  Record record;
  record.op = &op;
  uint32_t needs = 0;
  for (size_t i = 0; i < std::min<size_t>(inputs.size(), 32); ++i) needs |= uint32_t{inputs[i].requires_grad()} << i;
  record.saves = requires_grad ? op.saves(attrs, needs) : Saves{};
  record.saved_inputs.resize(inputs.size());
  std::vector<Tensor> held(inputs.size());  // by open segments: values from outside
  for (size_t i = 0; i < inputs.size(); ++i) {
    record.inputs.push_back(input_edge(inputs[i], *tape));
    if (i < 32 && inputs[i].pointer().use_count() == 1) record.given |= uint32_t{1} << i;
    if (tape->in_segment()) {
      if (!tape->is_inner(record.inputs[i]) || (record.saves.input(i) && tape->is_evicting()))
        held[i] = inputs[i].detach();
    } else if (record.saves.input(i)) {
      record.saved_inputs[i] = Saved::of(inputs[i]);
    }
  }
  const OpCost before = context().queued;
  std::vector<Tensor> outputs = run_forward(op, attrs, inputs);
  record.cost = {context().queued.flops - before.flops, context().queued.bytes - before.bytes};
  record.attrs = std::move(attrs);
  record.outputs.resize(1);
  record.outputs[0].requires_grad = requires_grad;
  tape->append(std::move(record), held, outputs);
  return outputs;
}

Tensor apply1(const Op& op, std::any attrs, std::vector<Tensor> inputs) {
  return std::move(apply(op, std::move(attrs), std::move(inputs))[0]);
}

std::vector<Tensor> run_forward(const Op& op, const std::any& attrs, std::span<Tensor> inputs) {
  const NoGrad guard;
  std::vector<Tensor> outputs = op.forward(attrs, inputs);
  for (Tensor& y : outputs) {
    const TensorImpl& impl = y.impl();
    const bool fresh = y.pointer().use_count() == 1 && impl.producer.index < 0;
    if (!fresh) y = make_view(y, impl.shape, impl.strides, impl.offset);
  }
  return outputs;
}

bool is_sole_owner(const Tensor& t) {
  const TensorImpl& impl = t.impl();
  return t.pointer().use_count() == 1 && impl.storage.use_count() == 1 && impl.offset == 0 &&
         t.is_contiguous() && t.bytes() == impl.storage->bytes();
}

Tensor reuse_or_empty(Tensor& candidate, const Shape& shape, DType dtype) {
  const TensorImpl& impl = candidate.impl();
  if (is_sole_owner(candidate) && impl.dtype == dtype && impl.shape == shape &&
      !impl.grad.defined() && context().techniques.inplace)
    return make_view(candidate, shape, dense_strides(shape), 0);
  return empty(shape, dtype, candidate.device().shared_from_this());
}

}  // namespace rw
