#include "planner/follow/tape_rerun.h"

#include <algorithm>
#include <unordered_set>

#include "core/tensor/weight_copies.h"
#include "ops/ops.h"

namespace rw {

namespace {

// Makes `t`, which has the sizes of `like`, a leaf with as many gradients and copies.
void make_leaf(Tensor& t, const Tensor& like) {
  t.set_requires_grad();
  if (const WeightCopies* copies = WeightCopies::of(like))
    t.impl().storage->set_copies(std::make_shared<WeightCopies>(copies->use()));
  const PurposeScope gradients(Purpose::gradient);
  const TensorImpl& leaf = like.impl();
  if (leaf.grad.defined()) t.impl().grad = empty(leaf.grad.shape(), leaf.grad.dtype());
  if (leaf.grad_place.defined())
    t.impl().grad_place = leaf.grad.defined() ? t.impl().grad : empty(like.shape(), DType::f32);
}

// An op without inputs makes its outputs on a device of its choice, so this op makes as many bytes
// in its place.
std::vector<Tensor> made_from_nothing(const std::any& attrs, std::span<Tensor>) {
  std::vector<Tensor> outputs;
  for (const Edge& edge : std::any_cast<const Record*>(attrs)->outputs) {
    outputs.push_back(empty(edge.shape, edge.dtype));
    fill_(outputs.back(), 0);
  }
  return outputs;
}
const Op from_nothing = {"random", made_from_nothing};

}  // namespace

// One run on the default device, which is dry, with this thread's tape, which is empty.
class TapeRerun::Pass : public Tape::Follower {
 public:
  Pass(const Tape& from, const std::vector<bool>& left_out, bool keeps)
      : from_(from), left_out_(left_out), tape_(*Tape::current()) {
    for (int64_t i = from.begin(); i < from.end(); ++i) {
      const Record* record = from.find(i);
      if (!record) continue;
      for (const Edge& edge : record->outputs)
        if (edge.released >= 0) dying_[edge.released].push_back(edge.id);
      for (const Edge& edge : record->inputs) {
        if (!is_outside(edge)) continue;
        last_reader_[edge.id] = i;
        if (edge.leaf.defined()) leaf_edges_[edge.id] = &edge;
      }
    }
    find_held();
    for (const Segment& segment : from.segments().all())
      if (keeps && !segment.policy && !(segment.kept.empty() && segment.replay_keeps.empty()))
        tape_.exchange_follower(this);
  }

  void forward() {
    for (int64_t i = from_.begin(); i < from_.end(); ++i) {
      close_segments(i);
      open_segments(i);
      drop(i);
      if (const Record* record = from_.find(i)) forward(i, *record);
    }
    close_segments(from_.end());
    current_ = nullptr;
  }

  void backward(int64_t root, int slot, bool holds_gradient) {
    if (tape_.follower() == this) tape_.exchange_follower(nullptr);
    drop(from_.end());
    const Tensor loss = values_.at(from_.find(root)->outputs[static_cast<size_t>(slot)].id);
    const bool is_given = holds_gradient || loss.numel() != 1;
    loss.backward(is_given ? empty(loss.shape(), loss.dtype()) : Tensor());
  }

  void before_record(Tape&, const Op&) override {}
  void after_record(const Record& record, std::span<const Tensor>) override {
    for (const auto& [number, segment] : open_)
      for (size_t k = 0; k < record.outputs.size(); ++k)
        if (range(number).replay_keeps.contains(current_->outputs[k].key()))
          tape_.keep_in_replay(segment, record.outputs[k].key());
  }
  // Returns the outputs that a plan keeps. Policies decide anew, so what they keep is not repeated
  // here.
  uint32_t kept_outputs() const override {
    uint32_t kept = 0;
    const int s = current_->segment;
    if (s < 0 || from_.segments()[s].policy) return 0;
    for (size_t k = 0; k < std::min<size_t>(32, current_->outputs.size()); ++k)
      if (from_.segments()[s].kept.contains(current_->outputs[k].key())) kept |= uint32_t{1} << k;
    return kept;
  }

 private:
  // Finds values from outside that outlive the pass, since something other than the tape holds
  // their storage.
  void find_held() {
    std::unordered_map<const Storage*, std::unordered_set<const TensorImpl*>> handles;
    std::unordered_map<const Storage*, long> users;
    std::unordered_map<uint64_t, const Storage*> storages;
    const auto count = [&](uint64_t id, const Tensor& t) {
      if (!t.defined()) return;
      const auto& storage = t.impl().storage;
      handles[storage.get()].insert(&t.impl());
      users[storage.get()] = storage.use_count();
      storages[id] = storage.get();
    };
    for (int64_t i = from_.begin(); i < from_.end(); ++i)
      if (const Record* record = from_.find(i))
        each_saved(*record, [&](const Edge& e) { count(e.id, e.saved.tensor); });
    for (const Segment& segment : from_.segments().all()) {
      for (const auto& [key, external] : segment.externals) count(key.id, external.value.tensor);
      for (const auto& [key, kept] : segment.kept) count(key.id, kept.value.tensor);
    }
    for (const auto& [id, storage] : storages)
      if (users[storage] > static_cast<long>(handles[storage].size())) held_.insert(id);
  }

  void close_segments(int64_t i) {
    for (; !open_.empty() && range(open_.back().first).last <= i; open_.pop_back())
      tape_.close_segment(open_.back().second);
  }
  void open_segments(int64_t i) {
    const auto count = from_.segments().size();
    for (; next_ < count && range(next_).first <= i; ++next_)
      if (range(next_).last > i && !left_out_[static_cast<size_t>(next_)])
        open_.emplace_back(next_, tape_.open_segment(range(next_).policy));
  }
  const Segment& range(int segment) const { return from_.segments()[segment]; }

  // Drops the values whose handles died before record i. The handles that an op was given, the op
  // drops itself.
  void drop(int64_t i) {
    const Record* next = from_.find(i);
    const auto is_taken = [&](uint64_t id) {
      for (size_t k = 0; next && k < next->inputs.size(); ++k)
        if (next->inputs[k].id == id && is_given(*next, k) && !is_outside(next->inputs[k]))
          return true;
      return false;
    };
    if (const auto dying = dying_.find(i); dying != dying_.end())
      for (const uint64_t id : dying->second)
        if (!is_taken(id)) take(id, i);
  }

  static bool is_given(const Record& record, size_t k) { return k < 32 && (record.given >> k & 1); }

  // Returns the value of the tape whose handle dies with the record `index`. Detached handles that
  // are read from there on have lived beside it.
  Tensor take(uint64_t id, int64_t index) {
    const auto found = values_.find(id);
    if (found == values_.end()) return {};
    const auto last = last_reader_.find(id);
    if (last != last_reader_.end() && last->second >= index)
      outside_.try_emplace(id, found->second.detach());
    Tensor value = std::move(found->second);
    values_.erase(found);
    return value;
  }

  // Returns input k as the op was given it. The last handle of a value from outside can only have
  // gone to its last reader, since whoever reads it later has another handle.
  Tensor input(int64_t index, const Record& record, size_t k) {
    const Edge& edge = record.inputs[k];
    if (!is_outside(edge)) {
      if (is_given(record, k)) return take(edge.id, index);
      if (const auto value = values_.find(edge.id); value != values_.end()) return value->second;
    }
    Tensor& value = outside(edge);
    if (!is_given(record, k)) return value;
    const auto is_same = [&](const Edge& other) { return other.id == edge.id; };
    const auto after = record.inputs.begin() + static_cast<int64_t>(k) + 1;
    const bool is_last = last_reader_.at(edge.id) == index && !held_.contains(edge.id) &&
                         std::none_of(after, record.inputs.end(), is_same);
    return is_last ? std::move(value) : value.detach();
  }

  void forward(int64_t index, const Record& record) {
    current_ = &record;
    std::vector<Tensor> inputs;
    for (size_t k = 0; k < record.inputs.size(); ++k) inputs.push_back(input(index, record, k));
    std::vector<Tensor> outputs = record.inputs.empty()
                                      ? apply(from_nothing, &record, {})
                                      : apply(*record.op, record.attrs, std::move(inputs));
    for (size_t k = 0; k < outputs.size(); ++k) {
      storages_[record.outputs[k].storage] = outputs[k].pointer();
      values_[record.outputs[k].id] = std::move(outputs[k]);
    }
    for (const Edge& edge : record.inputs) {
      const auto last = last_reader_.find(edge.id);
      if (last != last_reader_.end() && last->second == index && !held_.contains(edge.id))
        outside_.erase(edge.id);
    }
  }

  bool is_outside(const Edge& edge) const { return !from_.find(edge.record); }

  // Returns the handle outside the tape for which the edge stands. All handles with one id share
  // its memory: a leaf, tensors detached from it, and tensors detached from a value of the tape.
  Tensor& outside(const Edge& edge) {
    const bool is_leaf = edge.leaf.defined();
    Tensor& handle = (is_leaf ? leaves_ : outside_)[edge.id];
    if (handle.defined()) return handle;
    for (const auto* handles : {&values_, &outside_, &leaves_})
      if (const auto other = handles->find(edge.id);
          !handle.defined() && other != handles->end() && other->second.defined())
        handle = other->second.detach();
    const auto leaf = leaf_edges_.find(edge.id);
    if (!handle.defined() && !is_leaf && leaf != leaf_edges_.end())
      handle = outside(*leaf->second).detach();
    const PurposeScope purpose(is_leaf ? Purpose::parameter : Purpose::activation);
    if (!handle.defined() && !is_leaf) handle = view_of_known(edge);
    if (!handle.defined()) handle = empty(edge.shape, edge.dtype);
    if (is_leaf) make_leaf(handle, edge.leaf);
    storages_[edge.storage] = handle.pointer();
    return handle;
  }

  // Returns a view, made without a record, of another value in the same storage, or an undefined
  // tensor if no known value lies there.
  Tensor view_of_known(const Edge& edge) const {
    const auto known = storages_.find(edge.storage);
    const auto base = known == storages_.end() ? nullptr : known->second.lock();
    const auto bytes = static_cast<uint64_t>(edge.shape.numel()) * size_of(edge.dtype);
    if (!base || base->dtype != edge.dtype || bytes > base->storage->bytes()) return {};
    return make_view(Tensor(base), edge.shape, dense_strides(edge.shape), 0);
  }

  const Tape& from_;
  const std::vector<bool>& left_out_;
  Tape& tape_;
  std::unordered_map<int64_t, std::vector<uint64_t>> dying_;  // ids that die before each record
  std::unordered_map<uint64_t, int64_t> last_reader_;         // by id, of values from outside
  std::unordered_map<uint64_t, const Edge*> leaf_edges_;      // by id, of those that are leaves
  std::unordered_set<uint64_t> held_;                         // ids that outlive the last reader
  // The values whose handles are alive, by id: values of the tape, values from outside, and leaves.
  std::unordered_map<uint64_t, Tensor> values_, outside_, leaves_;
  std::unordered_map<uint64_t, std::weak_ptr<TensorImpl>> storages_;  // one handle on each
  std::vector<std::pair<int, Segments::Handle>> open_;  // the segment there, its scope here
  int next_ = 0;
  const Record* current_ = nullptr;
};

TapeRerun::TapeRerun(const Tape& tape, const Tensor& loss, bool ignores_segments,
                     bool holds_gradient)
    : tape_(tape), holds_gradient_(holds_gradient) {
  for (const Segment& segment : tape.segments().all())
    if (segment.last < 0 || (!ignores_segments && segment.evicts)) return;
  if (loss.defined() && loss.impl().producer.tape.lock().get() == &tape) {
    root_ = loss.impl().producer.index;
    slot_ = loss.impl().producer.slot;
  }
  for (int64_t i = tape.end() - 1; !loss.defined() && root_ < 0 && i >= tape.begin(); --i) {
    const Record* record = tape.find(i);
    if (!record || !record->outputs[0].requires_grad) continue;
    for (size_t k = 0; k < record->outputs.size(); ++k)
      if (record->outputs[k].released < 0) {
        root_ = i;
        slot_ = static_cast<int>(k);
        break;
      }
  }
  possible_ = root_ >= 0 && tape.find(root_) && grad_enabled() &&
              default_device()->backend().dry() != nullptr;
}

std::optional<Forecast> TapeRerun::run(const std::vector<bool>& left_out) const {
  const auto program = [&] {
    Pass pass(tape_, left_out, true);
    pass.forward();
    pass.backward(root_, slot_, holds_gradient_);
  };
  try {
    return dry_run(default_device()->backend().dry(), program, {.pack = false});
  } catch (const OutOfMemory&) {
    return std::nullopt;
  }
}

void TapeRerun::run() const {
  const std::vector<bool> all(static_cast<size_t>(tape_.segments().size()), true);
  Pass pass(tape_, all, false);
  pass.forward();
  pass.backward(root_, slot_, holds_gradient_);
}

uint64_t TapeRerun::outside_bytes(uint64_t newest) const {
  std::unordered_map<uint64_t, uint64_t> bytes;  // by id
  std::unordered_set<uint64_t> made;             // ids of the tape's values, detached or not
  for (int64_t i = tape_.begin(); i < tape_.end(); ++i) {
    const Record* record = tape_.find(i);
    if (!record) continue;
    for (const Edge& edge : record->outputs) made.insert(edge.id);
    for (const Edge& edge : record->inputs) {
      if (edge.record >= tape_.begin() || made.contains(edge.id) || edge.storage > newest) continue;
      bytes[edge.id] = static_cast<uint64_t>(edge.shape.numel()) * size_of(edge.dtype);
      if (!edge.leaf.defined()) continue;
      const TensorImpl& leaf = edge.leaf.impl();
      for (const Tensor& gradient : {leaf.grad, leaf.grad_place})
        if (gradient.defined()) bytes[gradient.impl().id] = gradient.bytes();
    }
  }
  const uint64_t unit = default_device()->info().alignment;
  uint64_t all = 0;
  for (const auto& [id, size] : bytes) all += (std::max(size, unit) + unit - 1) / unit * unit;
  return all;
}

}  // namespace rw
