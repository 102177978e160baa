// A run backward over a tape: from tensors with their gradients to leaves, or to the wanted
// tensors.
#pragma once

#include <algorithm>
#include <map>
#include <unordered_map>

#include "../tensor/launch.h"
#include "../tensor/primitives.h"
#include "gradient_op.h"
#include "replay.h"
#include "tape.h"

namespace rw {

class Backward {
 public:
  // Adds to the gradients of leaves.
  Backward(Tape& tape, bool retain)
      : tape_(tape), records_(tape.records_), segments_(tape.segments_), retain_(retain) {}
  // Collects the gradients of `wanted`, and changes no leaf. With `create_graph` everything that it
  // does is recorded, and the records stay.
  Backward(Tape& tape, const std::vector<Tensor>& wanted, bool retain, bool create_graph)
      : Backward(tape, retain || create_graph) {
    is_for_leaves_ = false;
    create_graph_ = create_graph;
    for (const Tensor& x : wanted) {
      const Producer& producer = x.impl().producer;
      if (producer.index >= 0)
        wanted_outputs_[{producer.index, producer.slot}] = {};
      else
        leaf_sums_.try_emplace(&x.impl(), x);
    }
  }

  // Starts from tensors of the tape, with gradients of their shapes (undefined or too few: one).
  // `op` is for messages.
  void start(const char* op, const std::vector<Tensor>& roots,
             const std::vector<Tensor>& gradients);
  Tensor collected(const Tensor& x) const {  // undefined: no gradient came
    const Producer& producer = x.impl().producer;
    return producer.index >= 0 ? wanted_outputs_.at({producer.index, producer.slot})
                               : leaf_sums_.at(&x.impl()).sum;
  }

 private:
  void check_differentiable(const std::vector<Tensor>& roots);
  void run(const std::vector<Tensor>& roots, std::vector<Tensor> gradients);
  void loop(int64_t root) {
    int segment = segments_.size() - 1;
    const auto first_of = [&](int s) { return segments_[s].first; };
    while (segment >= 0 && first_of(segment) > root) --segment;
    for (int64_t i = root; i >= records_.begin(); --i) {
      const Record& record = records_[i];
      if (record.reached) visit(i);
      if (const int s = evicting(record); s >= 0)
        segments_[s].forget(record, record.reached && !retain_ && !segments_.is_open(s));
      for (; segment >= 0 && first_of(segment) == i; --segment) leave(segment);
      const auto [first, end] = completions_.equal_range(i);
      for (auto done = first; done != end; ++done) complete(*done->second);
    }
    if (!retain_) retire(root);
  }

  // Returns the evicting segment that contains the record, or -1.
  int evicting(const Record& record) const {
    const int s = record.segment;
    return s >= 0 && segments_[s].evicts ? s : -1;
  }

  // Finds out after which record the gradients of leaves that have hooks, or that are wanted, are
  // complete: the first one that reads the leaf, even if no gradient passes it, since its value may
  // have to be recomputed until then.
  void find_completions(int64_t last) {
    for (int64_t i = records_.begin(); i <= last; ++i) {
      if (!records_[i].op) continue;
      for (const Edge& edge : records_[i].inputs) {
        if (!edge.leaf.defined()) continue;
        const TensorImpl& impl = edge.leaf.impl();
        const bool has_hooks = impl.hooks || impl.post_accumulate_hooks;
        if (is_for_leaves_ && has_hooks) leaf_sums_.try_emplace(&impl, edge.leaf);
        const auto leaf = leaf_sums_.find(&impl);
        if (leaf == leaf_sums_.end() || leaf->second.is_found) continue;
        leaf->second.is_found = true;
        completions_.emplace(i, &leaf->second);
      }
    }
  }

  // Marks the records that a gradient from the roots reaches, or only those that it must pass on
  // its way to the wanted tensors.
  void mark(const std::vector<Tensor>& roots, int64_t last) {
    for (int64_t i = records_.begin(); i < records_.end(); ++i) records_[i].reached = false;
    for (const Tensor& root : roots)
      if (const int64_t i = root.impl().producer.index; i >= 0) records_[i].reached = true;
    mark_from(last);
    if (!is_for_leaves_) unmark_unwanted(last);
  }

  void mark_from(int64_t last) {
    for (int64_t i = last; i >= records_.begin(); --i) {
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

  void unmark_unwanted(int64_t last) {
    std::vector<bool> leads(static_cast<size_t>(last - records_.begin() + 1));
    const auto at = [&](int64_t i) { return static_cast<size_t>(i - records_.begin()); };
    for (int64_t i = records_.begin(); i <= last; ++i) {
      Record& record = records_[i];
      if (!record.reached) continue;
      const auto found = wanted_outputs_.lower_bound({i, 0});
      leads[at(i)] = found != wanted_outputs_.end() && found->first.first == i;
      for (const Edge& edge : record.inputs)
        if (edge.requires_grad)
          leads[at(i)] =
              leads[at(i)] ||
              (edge.record >= 0 ? leads[at(edge.record)] : leaf_sums_.contains(&edge.leaf.impl()));
      record.reached = leads[at(i)];
    }
  }

  // Handles the complete gradient of an output: hooks and wanted outputs see it before the vjp
  // does.
  void hand_out(int64_t index, int slot, Tensor& gradient) {
    const auto hooks = tape_.hooks_.find({index, slot});
    const auto wanted = wanted_outputs_.find({index, slot});
    if (hooks == tape_.hooks_.end() && wanted == wanted_outputs_.end()) return;
    gradient = in_dtype(gradient, records_[index].outputs[static_cast<size_t>(slot)].dtype);
    if (hooks != tape_.hooks_.end()) gradient = hooked(*hooks->second, std::move(gradient));
    if (wanted != wanted_outputs_.end()) wanted->second = gradient;
  }

  void visit(int64_t index) {
    Record& record = records_[index];
    std::vector<Tensor>& dy = gradients_;
    dy.clear();
    for (Edge& edge : record.outputs) dy.push_back(std::move(edge.gradient));
    if (std::none_of(dy.begin(), dy.end(), [](const Tensor& t) { return t.defined(); })) return;
    if (!tape_.hooks_.empty() || !wanted_outputs_.empty())
      for (size_t k = 0; k < dy.size(); ++k)
        if (dy[k].defined()) hand_out(index, static_cast<int>(k), dy[k]);
    const int evictable = evicting(record);
    if (evictable >= 0)
      replayed(Replay(records_, segments_, evictable).run_for(record));
    else if (record.segment >= 0 && (record.saves.inputs || record.saves.outputs))
      open(record.segment);
    const OpScope scope(record.op->name);
    const SegmentScope segment(record.segment);
    if (!record.op->any_grad_dtype)
      for (size_t k = 0; k < dy.size(); ++k)
        if (dy[k].defined() && dy[k].dtype() != record.outputs[k].dtype)
          dy[k] = in_dtype(dy[k], record.outputs[k].dtype);
    for (Edge& edge : record.inputs) edge.leaf_edge = behind_cast(edge);
    for (Tape::Observer* observer : tape_.observers()) observer->before_vjp(index, record, dy);
    const bool is_last_read = !retain_ || evictable >= 0;
    record.is_last_read =
        is_last_read && !create_graph_;  // ops that are recorded keep what they read
    record.is_for_leaves = is_for_leaves_;
    std::vector<Tensor> dx =
        create_graph_ ? differentiable_vjp(index, record, dy) : record.op->vjp(record, dy);
    dy.clear();
    if (is_last_read) release_saved(record);
    check<AutogradError>(dx.size() == record.inputs.size(), record.op->name,
                         "the vjp must return one gradient per input, got {} for {}", dx.size(),
                         record.inputs.size());
    for (Tape::Observer* observer : tape_.observers()) observer->after_vjp(index, record, dx);
    distribute(record, std::move(dx));
  }

  // Returns the edge of the f32 leaf of which the value is a cast, or null if there is none or
  // somebody wants the cast's own gradient.
  const Edge* behind_cast(const Edge& edge) const {
    const Record* maker = is_for_leaves_ ? records_.find(edge.record) : nullptr;
    if (!maker || !maker->op->passes_gradient) return nullptr;
    const Edge& source = maker->inputs[0];
    const bool is_leaf = source.leaf.defined() && source.dtype == DType::f32;
    const bool is_wanted = tape_.hooks_.contains({edge.record, edge.slot});
    return is_leaf && !is_wanted ? &source : nullptr;
  }

  void distribute(const Record& record, std::vector<Tensor> dx) {
    for (size_t k = 0; k < dx.size(); ++k) {
      if (!record.inputs[k].requires_grad || !dx[k].defined()) continue;
      const Edge& edge = record.gradient_edge(k, dx[k].dtype());
      check<AutogradError>(dx[k].shape() == edge.shape, record.op->name,
                           "the gradient must have its input's shape, got {} and {}", dx[k].shape(),
                           edge.shape);
      if (edge.record < 0) {
        give_leaf(edge.leaf, std::move(dx[k]));
        continue;
      }
      Record& maker = records_[edge.record];
      if (!maker.reached) continue;
      Tensor& sum = maker.outputs[static_cast<size_t>(edge.slot)].gradient;
      sum = sum.defined() ? total(std::move(sum), std::move(dx[k])) : std::move(dx[k]);
    }
  }

  // Runs the vjp so that its results can be differentiated.
  std::vector<Tensor> differentiable_vjp(int64_t index, Record& record, std::span<Tensor> dy);
  void attach(Edge& edge, int64_t maker, int slot);
  Tensor in_dtype(const Tensor& gradient, DType dtype) const {
    return create_graph_ ? recorded_cast(gradient, dtype) : to_dtype(gradient, dtype);
  }
  Tensor total(Tensor a, Tensor b) const {
    return create_graph_ ? recorded_sum(std::move(a), std::move(b))
                         : sum_of(std::move(a), std::move(b));
  }

  struct LeafSum {
    explicit LeafSum(const Tensor& t) : leaf(t) {}
    // F32; the sum is kept apart if hooks or grad() are to have it as a whole.
    Tensor leaf, sum;
    bool is_found = false;    // its completion is known
    bool is_reached = false;  // a gradient has arrived
  };

  void give_leaf(const Tensor& leaf, Tensor gradient) {
    const auto found = leaf_sums_.find(&leaf.impl());
    if (found == leaf_sums_.end()) {
      if (is_for_leaves_) add_to_leaf(leaf, std::move(gradient));
      return;
    }
    found->second.is_reached = true;
    if (is_for_leaves_ && !leaf.impl().hooks) return add_to_leaf(leaf, std::move(gradient));
    Tensor& sum = found->second.sum;
    gradient = in_dtype(gradient, DType::f32);
    sum = sum.defined() ? total(std::move(sum), std::move(gradient)) : std::move(gradient);
  }

  // Completes a leaf to which all contributions have arrived.
  void complete(LeafSum& leaf) {
    if (!std::exchange(leaf.is_reached, false)) return;
    const TensorImpl& impl = leaf.leaf.impl();
    if (leaf.sum.defined() && impl.hooks) leaf.sum = hooked(*impl.hooks, std::move(leaf.sum));
    if (!is_for_leaves_) return;
    if (leaf.sum.defined()) add_to_leaf(leaf.leaf, std::exchange(leaf.sum, {}));
    if (impl.post_accumulate_hooks)
      for (const auto& [number, hook] : GradHooks(*impl.post_accumulate_hooks)) hook(leaf.leaf);
  }

  static void add_to_leaf(const Tensor& leaf, Tensor gradient);
  Tensor hooked(const GradHooks& hooks, Tensor gradient) const;  // returns the hooks' result

  void open(int s) {
    Segment& segment = segments_[s];
    if (segment.replayed) return;
    if (segment.parent >= 0) open(segment.parent);
    replayed(Replay(records_, segments_, s).run());
    drop_kept(s);
    if (!is_wanted_again(s)) drop_externals(segment);
  }

  // Drops the values that the segment holds for its replay, which nobody needs after it, since
  // records have what they save. A later replay needs those again that no replay makes.
  void drop_kept(int s) {
    Segment& segment = segments_[s];
    const bool again = is_wanted_again(s);
    const auto stays = [&](const auto& item) { return again && item.second.is_only_copy; };
    for (int p = segment.parent; p >= 0; p = segments_[p].parent)
      for (const auto& item : segment.kept)
        if (!stays(item)) segments_[p].kept.erase(item.first);
    std::erase_if(segment.kept, std::not_fn(stays));
  }

  void drop_externals(Segment& segment) {
    hand_over(segment);
    segment.externals.clear();
  }

  // Leaves a segment whose first record the loop has passed.
  void leave(int s) {
    Segment& segment = segments_[s];
    drop_kept(s);
    if (is_wanted_again(s)) {
      hand_over(segment);
      reset(s);
    } else {
      drop_externals(segment);
    }
    segment.replayed = false;
  }

  // Tells whether a later backward may replay it.
  bool is_wanted_again(int s) {
    const Segment& segment = segments_[s];
    if (retain_ || segments_.is_open(s)) return true;
    for (int64_t i = segment.first; i < segment.last; ++i) {
      const Record& record = records_[i];
      if (record.op && record.outputs[0].requires_grad && !record.reached) return true;
    }
    return false;
  }

  // Drops the values that the replay brought back; the next backward replays again.
  void reset(int s) {
    Segment& segment = segments_[s];
    for (int64_t i = segment.first; segment.replayed && i < segment.last; ++i)
      if (records_[i].segment == s) release_saved(records_[i]);
    for (auto& [key, external] : segment.externals)  // inner values of a parent are dropped again
      if (external.record >= 0 && inner_of_ancestor(segment, external.record)) external.value = {};
  }

  bool inner_of_ancestor(const Segment& segment, int64_t record) const {
    for (int p = segment.parent; p >= 0; p = segments_[p].parent)
      if (segments_[p].contains(record)) return true;
    return false;
  }

  // Hands over values that this segment held and that an earlier segment's vjp reads, so that they
  // need not be replayed.
  void hand_over(Segment& segment) {
    for (const auto& [key, external] : segment.externals) {
      if (external.record < records_.begin() || !external.value.tensor.defined()) continue;
      const Record& maker = records_[external.record];
      if (!maker.op || maker.segment < 0) continue;
      Segment& earlier = segments_[maker.segment];
      if (!earlier.replayed && saves(earlier, maker.segment, external.record, key))
        earlier.kept[key] = {external.value, external.record};
    }
  }

  // Tells whether an own record of the segment, from the value's maker on, saves the value.
  bool saves(const Segment& segment, int number, int64_t maker, const ValueKey& key) {
    bool found = false;
    for (int64_t i = maker; i < segment.last && !found; ++i) {
      const Record& record = records_[i];
      if (!record.op || record.segment != number) continue;
      each_saved(record, [&](const Edge& edge) { found |= edge.key() == key; });
    }
    return found;
  }

  static void release_saved(Record& record) {
    for (Edge& edge : record.inputs) edge.saved = {};
    for (Edge& edge : record.outputs) edge.saved = {};
  }

  // Frees the records that backward has passed.
  void retire(int64_t root) {
    for (int64_t i = root; i >= records_.begin(); --i) {
      if (!records_[i].reached) continue;
      const Record dead = records_.take(i);
      tape_.free_hooks(i);
      tape_.count_record(dead, -1);
      for (const Edge& edge : dead.inputs)
        if (Record* maker = records_.find(edge.record)) --maker->readers;
    }
    std::vector<int64_t> unread;  // side branches that only retired records read
    for (int64_t i = root; i >= records_.begin(); --i)
      if (const Record& record = records_[i]; record.op && record.readers == 0) unread.push_back(i);
    tape_.free_records(std::move(unread));
  }

  // Frees the records of this run on which no result depends: none is freed while it runs.
  void free_unread(int64_t first) {
    std::vector<int64_t> unread;
    for (int64_t i = std::max(first, records_.begin()); i < records_.end(); ++i)
      if (records_[i].op && records_[i].readers == 0) unread.push_back(i);
    tape_.free_records(std::move(unread));
  }

  void replayed(uint64_t records) { tape_.replayed_records_ += records; }

  Tape& tape_;
  Records& records_;
  Segments& segments_;
  bool retain_;
  bool is_for_leaves_ = true;
  bool create_graph_ = false;
  std::vector<Tensor> gradients_;  // of the outputs of the record that is visited
  std::map<std::pair<int64_t, int>, Tensor> wanted_outputs_;  // record, slot
  std::unordered_map<const TensorImpl*, LeafSum> leaf_sums_;  // members have stable addresses
  std::multimap<int64_t, LeafSum*> completions_;              // by record
};

}  // namespace rw
