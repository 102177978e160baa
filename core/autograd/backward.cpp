// Backward: one reverse loop over the tape.
#include <algorithm>

#include "rewind/core/autograd/replay.h"
#include "rewind/core/autograd/tape.h"
#include "rewind/core/tensor/launch.h"
#include "rewind/core/tensor/primitives.h"

namespace rw {

namespace {

void add_to_leaf(const Tensor& leaf, Tensor gradient) {
  TensorImpl& impl = leaf.impl();
  if (!impl.grad.defined()) impl.grad = impl.grad_place;
  if (gradient.pointer() == impl.grad.pointer()) return;  // the vjp added to it
  if (impl.grad.defined()) return accumulate(gradient, impl.grad);
  const PurposeScope purpose(Purpose::gradient);
  const Tensor& g = gradient;
  if (is_sole_owner(g) && g.dtype() == DType::f32) {
    impl.grad = std::move(gradient);
    impl.grad.device().set_purpose(*impl.grad.impl().storage, Purpose::gradient);
  } else {
    impl.grad = empty(g.shape(), DType::f32, g.device().shared_from_this());
    copy_into(gradient, impl.grad);
  }
}

}  // namespace

class Backward {
 public:
  // Checks what Tensor::backward was given, and runs.
  static void start(Tape& tape, const Tensor& root, const Tensor& gradient, bool retain);

 private:
  Backward(Tape& tape, bool retain)
      : tape_(tape), records_(tape.records_), segments_(tape.segments_), retain_(retain) {}

  void run(int64_t root, int slot, Tensor gradient) {
    mark(root);
    records_[root].outputs[static_cast<size_t>(slot)].gradient = std::move(gradient);
    int segment = segments_.size() - 1;
    const auto first_of = [&](int s) { return segments_[s].first; };
    while (segment >= 0 && first_of(segment) > root) --segment;
    for (int64_t i = root; i >= records_.begin(); --i) {
      if (records_[i].reached) visit(records_[i]);
      if (const int s = evicting(records_[i]); s >= 0) segments_[s].forget(records_[i]);
      for (; segment >= 0 && first_of(segment) == i; --segment) leave(segment);
    }
    if (!retain_) retire(root);
  }

  // The evicting segment that the record is in, or -1.
  int evicting(const Record& record) const {
    const int s = record.segment;
    return s >= 0 && segments_[s].evicts ? s : -1;
  }

  // The records that a gradient from `root` reaches.
  void mark(int64_t root) {
    for (int64_t i = records_.begin(); i < records_.end(); ++i) records_[i].reached = i == root;
    for (int64_t i = root; i >= records_.begin(); --i) {
      const Record& record = records_[i];
      if (!record.reached) continue;
      check<AutogradError>(record.op != nullptr, "backward",
                           "the tape was freed by an earlier backward; call it with retain = true");
      for (const Edge& edge : record.inputs) {
        if (!edge.requires_grad || edge.record < 0) continue;
        check<AutogradError>(
            records_.contains(edge.record), "backward",
            "the tape was freed by an earlier backward; call it with retain = true");
        records_[edge.record].reached = true;
      }
    }
  }

  void visit(Record& record) {
    std::vector<Tensor> dy;
    dy.reserve(record.outputs.size());
    for (Edge& edge : record.outputs) dy.push_back(std::exchange(edge.gradient, {}));
    if (std::none_of(dy.begin(), dy.end(), [](const Tensor& t) { return t.defined(); })) return;
    const int elastic = evicting(record);
    if (elastic >= 0)
      replayed(Replay(records_, segments_, elastic).run_for(record));
    else if (record.segment >= 0 && (record.saves.inputs || record.saves.outputs))
      open(record.segment);
    const OpScope scope(record.op->name);
    const SegmentScope segment(record.segment);
    if (!record.op->any_grad_dtype)
      for (size_t k = 0; k < dy.size(); ++k)
        if (dy[k].defined() && dy[k].dtype() != record.outputs[k].dtype)
          dy[k] = to_dtype(dy[k], record.outputs[k].dtype);
    record.is_last_read = !retain_ || elastic >= 0;
    std::vector<Tensor> dx = record.op->vjp(record, dy);
    dy.clear();
    if (record.is_last_read) release_saved(record);
    distribute(record, std::move(dx));
  }

  void distribute(const Record& record, std::vector<Tensor> dx) {
    check<AutogradError>(dx.size() == record.inputs.size(), record.op->name,
                         "the vjp must return one gradient per input, got {} for {}", dx.size(),
                         record.inputs.size());
    for (size_t k = 0; k < dx.size(); ++k) {
      const Edge& edge = record.inputs[k];
      if (!edge.requires_grad || !dx[k].defined()) continue;
      check<AutogradError>(dx[k].shape() == edge.shape, record.op->name,
                           "the gradient must have its input's shape, got {} and {}", dx[k].shape(),
                           edge.shape);
      if (edge.record < 0) {
        add_to_leaf(edge.leaf, std::move(dx[k]));
        continue;
      }
      Tensor& sum = records_[edge.record].outputs[static_cast<size_t>(edge.slot)].gradient;
      sum = sum.defined() ? sum_of(std::move(sum), std::move(dx[k])) : std::move(dx[k]);
    }
  }

  void open(int s) {
    Segment& segment = segments_[s];
    if (segment.replayed) return;
    if (segment.parent >= 0) open(segment.parent);
    replayed(Replay(records_, segments_, s).run());
    drop_kept(segment);
    if (!is_wanted_again(segment)) drop_externals(segment);
  }

  // What the segment holds for its replay is not needed after it: records have what they save.
  void drop_kept(Segment& segment) {
    for (int p = segment.parent; p >= 0; p = segments_[p].parent)
      for (const auto& [id, value] : segment.kept) segments_[p].kept.erase(id);
    segment.kept.clear();
  }

  void drop_externals(Segment& segment) {
    hand_over(segment);
    segment.externals.clear();
  }

  // The loop has passed the segment's first record.
  void leave(int s) {
    Segment& segment = segments_[s];
    drop_kept(segment);
    if (is_wanted_again(segment)) {
      hand_over(segment);
      reset(s);
    } else {
      drop_externals(segment);
    }
    segment.replayed = false;
  }

  // Whether a later backward may replay it.
  bool is_wanted_again(const Segment& segment) {
    if (retain_) return true;
    for (int64_t i = segment.first; i < segment.last; ++i) {
      const Record& record = records_[i];
      if (record.op && record.outputs[0].requires_grad && !record.reached) return true;
    }
    return false;
  }

  // Drops what the replay brought back; the next backward replays again.
  void reset(int s) {
    Segment& segment = segments_[s];
    for (int64_t i = segment.first; segment.replayed && i < segment.last; ++i)
      if (records_[i].segment == s) release_saved(records_[i]);
    for (auto& [id, external] : segment.externals)  // inner values of a parent go again
      if (external.record >= 0 && inner_of_ancestor(segment, external.record)) external.value = {};
  }

  bool inner_of_ancestor(const Segment& segment, int64_t record) const {
    for (int p = segment.parent; p >= 0; p = segments_[p].parent)
      if (segments_[p].contains(record)) return true;
    return false;
  }

  // A value that this segment held and that an earlier segment's vjp reads need not be replayed.
  void hand_over(Segment& segment) {
    for (const auto& [id, external] : segment.externals) {
      if (external.record < records_.begin() || !external.value.tensor.defined()) continue;
      const Record& maker = records_[external.record];
      if (!maker.op || maker.segment < 0) continue;
      Segment& earlier = segments_[maker.segment];
      if (!earlier.replayed && saves(earlier, maker.segment, external.record, id))
        earlier.kept[id] = {external.value, external.record};
    }
  }

  // Whether an own record of the segment, from the value's maker on, saves the value.
  bool saves(const Segment& segment, int number, int64_t maker, uint64_t id) {
    bool found = false;
    for (int64_t i = maker; i < segment.last && !found; ++i) {
      const Record& record = records_[i];
      if (!record.op || record.segment != number) continue;
      each_saved(record, [&](const Edge& edge) { found |= edge.id == id; });
    }
    return found;
  }

  static void release_saved(Record& record) {
    for (Edge& edge : record.inputs) edge.saved = {};
    for (Edge& edge : record.outputs) edge.saved = {};
  }

  // Frees the records that were passed.
  void retire(int64_t root) {
    for (int64_t i = root; i >= records_.begin(); --i) {
      if (!records_[i].reached) continue;
      Record dead;
      std::swap(dead, records_[i]);
      tape_.count_record(dead, -1);
      for (const Edge& edge : dead.inputs)
        if (Record* maker = records_.find(edge.record)) --maker->readers;
    }
    std::vector<int64_t> unread;  // side branches that only retired records read
    for (int64_t i = root; i >= records_.begin(); --i)
      if (records_[i].op && records_[i].readers == 0) unread.push_back(i);
    tape_.free_records(std::move(unread));
  }

  void replayed(uint64_t records) { tape_.replayed_records_ += records; }

  Tape& tape_;
  Records& records_;
  Segments& segments_;
  bool retain_;
};

void Tensor::backward(const Tensor& gradient, bool retain) const {
  Backward::start(*Tape::current(), *this, gradient, retain);
}

void Backward::start(Tape& tape, const Tensor& root, const Tensor& gradient, bool retain) {
  tape.take_foreign_releases();
  check<AutogradError>(!tape.running_, "backward", "must not be called inside a vjp");
  check<AutogradError>(!tape.in_segment(), "backward",
                       "must not be called inside a checkpoint scope");
  check<AutogradError>(root.requires_grad(), "backward",
                       "the tensor must depend on a leaf that requires a gradient, got {}", root);
  check<ShapeError>(gradient.defined() || root.numel() == 1, "backward",
                    "needs a scalar, or a gradient of its shape, got {}", root);
  check<ShapeError>(!gradient.defined() || gradient.shape() == root.shape(), "backward",
                    "the gradient must have the tensor's shape, got {} and {}", gradient, root);
  const Tensor both[] = {root, gradient};
  check_devices("backward", std::span(both, gradient.defined() ? 2 : 1));
  if (tape.before_backward_) std::exchange(tape.before_backward_, {})(root);
  const NoGrad guard;
  const PhaseScope phase(Phase::backward);
  Tensor seed = gradient.defined()
                    ? gradient.detach()
                    : full(root.shape(), 1.0f, root.dtype(), root.device().shared_from_this());
  const Producer& producer = root.impl().producer;
  if (producer.index < 0) return add_to_leaf(root, std::move(seed));
  check<AutogradError>(producer.tape.lock().get() == &tape, "backward",
                       "must run on the thread that recorded the tensor");
  check<AutogradError>(producer.index >= tape.begin(), "backward",
                       "the tape was freed by an earlier backward; call it with retain = true");
  tape.running_ = true;
  try {
    Backward(tape, retain).run(producer.index, producer.slot, std::move(seed));
  } catch (...) {  // half-run: nothing of the tape can be trusted
    tape.running_ = false;
    tape.clear();
    throw;
  }
  tape.running_ = false;
  tape.forget_if_empty();
}

}  // namespace rw
