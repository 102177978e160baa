#include "planner/follow/forward_pass.h"

#include <algorithm>
#include <unordered_set>

#include "core/blocks/block_type.h"
#include "core/tensor/quantize.h"

namespace rw {

namespace {

// Packing takes a kernel, and small values (statistics of rows) are needed exactly.
constexpr uint64_t least_packed_elements = 4096;

// Returns the bytes that the content of a storage of so many bytes takes in 8 bits, 0 if it is not
// worth packing.
uint64_t bytes_in_8_bits(uint64_t bytes, DType dtype) {
  const uint64_t n = bytes / size_of(dtype), unit = default_device()->info().alignment;
  if (!is_float(dtype) || n < least_packed_elements) return 0;
  return (blocks::steps.bytes_of(n) + 2 * unit - 1) / unit * unit;
}

}  // namespace

ForwardPass::ForwardPass(Tape& tape, const Plan& plan, Graph* record, int64_t first, OpTimes* times)
    : tape_(tape),
      plan_(plan),
      record_(record),
      times_(times),
      first_(first < 0 ? tape.end() : first),
      keeps_(plan.signature.size()),
      offloaded_(plan.offloads.size()) {
  for (const Plan::Output& output : plan.keep) {
    if (output.replay >= 0)
      replay_keeps_.emplace(output.record, output);
    else if (output.slot < 32)
      keeps_.at(output.record) |= uint32_t{1} << output.slot;
  }
  for (size_t k = 0; k < plan.offloads.size(); ++k) offloads_.emplace(plan.offloads[k].record, k);
  if (plan.evicts) evicting_ = tape.open_segment({}, true);
}

void ForwardPass::end() {
  if (!diverged_) send_due(SIZE_MAX);
  if (record_) sum_leaf_gradients();
  for (; !open_.empty(); open_.pop_back()) tape_.close_segment(open_.back().second);
  if (evicting_) tape_.close_segment(*evicting_);
}

void ForwardPass::before_record(Tape&, const Op& op) {
  if (record_) {
    default_device()->take_high_water();
    live_before_ = default_device()->live();
  }
  if (diverged_ || plan_.is_plain()) return;
  const auto index = static_cast<size_t>(tape_.next() - first_);
  const auto& planned = plan_.signature;
  if (index >= planned.size() || planned[index] != op.name) {
    difference_ = fmt::format("op {} of the forward pass is '{}', the plan has {}", index, op.name,
                              index < planned.size() ? fmt::format("'{}'", planned[index])
                                                     : fmt::format("{} ops", planned.size()));
    return leave();
  }
  send_due(index);
  if (diverged_) return;
  for (; !open_.empty() && open_.back().first <= index; open_.pop_back())
    tape_.close_segment(open_.back().second);
  const auto& segments = plan_.segments;
  for (; next_segment_ < segments.size() && segments[next_segment_].first == index;
       ++next_segment_) {
    handles_.push_back(tape_.open_segment());
    open_.emplace_back(segments[next_segment_].last, handles_.back());
  }
}

ByValue<int64_t> ForwardPass::held_values() const {
  std::vector<int> outermost(static_cast<size_t>(tape_.end() - first_), -1);
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const auto& [first, last, parent] = plan_.segments[s];
    if (parent < 0)
      std::fill(outermost.begin() + first, outermost.begin() + last, static_cast<int>(s));
  }
  const auto segment_of = [&](int64_t index) {
    return index < first_ ? -1 : outermost[static_cast<size_t>(index - first_)];
  };
  ByValue<int64_t> values;
  for (int64_t i = first_; i < tape_.end(); ++i) {
    const Record* record = tape_.find(i);
    if (!record) continue;
    const int segment = segment_of(i);
    const auto hold = [&](const Edge& edge) {
      if (edge.record >= first_) values[edge.key()] = edge.record;
    };
    if (segment < 0)
      each_saved(*record, hold);
    else
      for (const Edge& edge : record->inputs)
        if (segment_of(edge.record) != segment) hold(edge);
  }
  for (const Plan::Output& output : plan_.keep)
    if (output.replay < 0)
      values[tape_.find(first_ + output.record)->outputs.at(output.slot).key()] =
          first_ + output.record;
  return values;
}

void ForwardPass::leave() {
  if (std::exchange(diverged_, true)) return;
  for (; !open_.empty(); open_.pop_back()) tape_.close_segment(open_.back().second);
  if (default_device()->budget() && !evicting_) evicting_ = tape_.open_segment({}, true);
}

uint32_t ForwardPass::kept_outputs() const {
  const auto index = static_cast<size_t>(tape_.next() - first_);
  return !diverged_ && index < keeps_.size() ? keeps_[index] : 0;
}

uint32_t ForwardPass::value_of(const Edge& edge) {
  auto& values = record_->values;
  const auto [found, is_new] = values_.try_emplace(edge.root, static_cast<uint32_t>(values.size()));
  if (is_new) {
    const int64_t maker = edge.record >= first_ ? edge.record - first_ : -1;
    values.push_back({edge.bytes, static_cast<int32_t>(maker), static_cast<uint32_t>(edge.slot),
                      maker < 0 ? 0 : bytes_in_8_bits(edge.bytes, edge.dtype)});
  }
  return found->second;
}

void ForwardPass::after_record(const Record& record, std::span<const Tensor> outputs) {
  if (!diverged_ && !replay_keeps_.empty()) keep_in_replays(record);
  const auto [begin, end] = offloads_.equal_range(static_cast<size_t>(tape_.next() - first_));
  for (auto offload = begin; offload != end; ++offload) {
    const Tensor& value = outputs[plan_.offloads[offload->second].slot];
    if (value.defined()) offloaded_[offload->second] = value.impl().storage;
  }
  if (record_) record_node(record);
}

void ForwardPass::keep_in_replays(const Record& record) {
  const auto [begin, end] = replay_keeps_.equal_range(static_cast<size_t>(tape_.next() - first_));
  for (auto keep = begin; keep != end; ++keep) {
    const auto& [number, slot, replay] = keep->second;
    tape_.keep_in_replay(handles_.at(static_cast<size_t>(replay)), record.outputs.at(slot).key());
  }
}

// Sends the values that records before `end` have read for the last time. If the host has no memory
// for one, the plan is left.
void ForwardPass::send_due(size_t end) {
  for (; next_offload_ < offloaded_.size() && plan_.offloads[next_offload_].after < end;
       ++next_offload_) {
    const std::shared_ptr<Storage> storage = offloaded_[next_offload_].lock();
    if (!storage || storage->purpose() != Purpose::activation) continue;
    if (plan_.offloads[next_offload_].in_8_bits) {
      waiting_.emplace_back(next_offload_, 0);
      continue;
    }
    if (storage->device().to_host(*storage)) continue;
    difference_ =
        fmt::format("the host has no memory for {} bytes of {}", storage->bytes(), storage->op());
    return leave();
  }
  pack_waiting();
}

// Packs values in 8 bits, which may change them. A handle that the program still has on one keeps
// it waiting, so that nobody sees the change but vjps.
void ForwardPass::pack_waiting() {
  std::erase_if(waiting_, [&](auto& waiting) {
    auto& [offload, shared] = waiting;
    const std::shared_ptr<Storage> storage = offloaded_[offload].lock();
    if (!storage) return true;
    if (storage.use_count() == std::exchange(shared, storage.use_count())) return false;
    if (!only_vjps_read(storage, first_ + plan_.offloads[offload].record)) return false;
    keep_in_8_bits(storage);
    return true;
  });
}

// Tells whether all tensors on the storage, which record `maker` has made or some later one, are
// what vjps read that take values in 8 bits. Segments, which hold what they read from outside, and
// handles of the program have tensors of their own.
bool ForwardPass::only_vjps_read(const std::shared_ptr<Storage>& storage, int64_t maker) const {
  std::unordered_set<const TensorImpl*> saved;
  bool are_tolerant = true;
  for (int64_t i = maker; i < tape_.end(); ++i) {
    const Record* record = tape_.find(i);
    if (!record) continue;
    each_saved(*record, [&](const Edge& edge) {
      const Tensor& value = edge.saved.tensor;
      if (!value.defined() || value.impl().storage != storage) return;
      saved.insert(&value.impl());
      are_tolerant = are_tolerant && record->op->saves_8_bits;
    });
  }
  const auto own = static_cast<long>(saved.size()) + 1;  // the caller has a reference, too
  return are_tolerant && is_float(storage->dtype()) && storage.use_count() == own;
}

void ForwardPass::record_node(const Record& record) {
  Graph::Record node;
  node.reached = !record.outputs.empty() && record.outputs[0].requires_grad;
  node.cost = record.cost.total();
  node.work = record.cost;
  if (times_) node.seconds = times_->seconds(record);
  node.is_heavy = record.op->is_heavy;
  node.op = record.op->name;
  node.label = record.label();
  const auto saves = [&](uint32_t value) {
    if (!record.op->saves_8_bits) record_->values[value].quantized = 0;
    if (std::find(node.saved.begin(), node.saved.end(), value) == node.saved.end())
      node.saved.push_back(value);
  };
  for (size_t k = 0; k < record.inputs.size(); ++k) {
    node.inputs.push_back(value_of(record.inputs[k]));
    if (record.saves.input(k) && record.saves.takes(k)) saves(node.inputs.back());
    const Tensor& leaf = record.inputs[k].leaf;
    if (node.reached && leaf && !leaf.grad() && !leaf.impl().grad_place)
      leaves_[&leaf.impl()] = {record_->records.size(), leaf.numel() * sizeof(float)};
  }
  node.taken = static_cast<uint32_t>(node.saved.size());
  for (size_t k = 0; k < record.inputs.size(); ++k)
    if (record.saves.input(k)) saves(node.inputs[k]);
  uint64_t made = 0;
  for (size_t k = 0; k < record.outputs.size(); ++k) {
    const bool is_view = values_.contains(record.outputs[k].root);
    const uint32_t value = value_of(record.outputs[k]);
    if (record.saves.output(k)) saves(value);
    if (is_view) continue;  // a view takes no memory
    node.outputs.push_back(value);
    made += record.outputs[k].bytes;
  }
  const uint64_t live = default_device()->live(), high = default_device()->take_high_water();
  node.workspace = high - std::min(high, std::max(live, live_before_ + made));
  record_->records.push_back(std::move(node));
}

void ForwardPass::sum_leaf_gradients() {
  std::vector<uint64_t>& bytes = record_->leaf_gradients;
  bytes.assign(record_->records.size(), 0);
  for (const auto& [leaf, made] : leaves_) bytes[made.first] += made.second;
  for (size_t i = bytes.size(); i-- > 1;) bytes[i - 1] += bytes[i];
}

}  // namespace rw
