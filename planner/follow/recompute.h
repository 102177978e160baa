// Recomputation without marks in the model: the tape sets its segments by itself, from a plan made
// in a dry run or by eviction under a budget.
//   const Recompute recompute = ...;   // planner/follow/search.h
//   auto scope = checkpoint(recompute);
//   for (...) { loss = model(x); loss.backward(); ... }
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "../../core/autograd/checkpoint.h"
#include "../graph/graph.h"
#include "../graph/plan.h"

namespace rw {

// What happens to the activations of the forward passes run under it.
struct Recompute {
  std::vector<RecomputePlan::Segment>
      segments;  // parents before children; none: everything is kept
  // Output `slot` of the pass's record number `record`, kept from the forward pass on, or from the
  // replay of the segment `replay`.
  struct Output {
    uint32_t record = 0, slot = 0;
    int32_t replay = -1;  // index of a segment; -1: the forward pass
  };
  std::vector<Output> keep;  // outputs of records inside segments that are not dropped
  // By record, the names of the ops that the plan was made for. Where the program does something
  // else, the plan is left, and the rest of the pass is evicted where a budget demands it, or kept.
  std::vector<std::string> signature;
  // Keep everything, until an allocation would exceed the device's budget; then drop what is cheap
  // to make again, large and old (Kirisame et al. 2021, "Dynamic tensor rematerialization").
  bool evicts = false;
};

// A recorded forward pass, as the planner sees it.
struct RecordedGraph {
  RecomputeGraph graph;                // its values and what making them costs
  std::vector<std::string> ops;        // by record: Record::label()
  std::vector<bool> is_heavy;          // by record: Op::is_heavy
  std::vector<OpCost> costs;           // by record; the graph has their total()
  std::vector<std::string> signature;  // by record: Op::name
};

// The plan as forward passes follow it, by counting records.
Recompute follow(const RecordedGraph& recorded, const RecomputePlan& plan);

// One forward pass on a tape: sets the segments of a plan, by counting records, and observes what
// the pass does. The tape's follower tells it of every op.
class RecomputePass : public Tape::Follower {
 public:
  // Begins with record `first` of the tape, or with the next. `recompute` and `record` outlive the
  // pass; `record`: receives its graph, null: nobody wants it.
  RecomputePass(Tape& tape, const Recompute& recompute, RecordedGraph* record, int64_t first = -1);

  void before_record(Tape& tape, const Op& op) override;
  void after_record(const Record& record) override;
  uint32_t kept_outputs() const override;

  // The values of the recorded pass that its outermost segments and the records outside them hold
  // when forward ends, by id, with the record that makes each.
  std::unordered_map<uint64_t, int64_t> held_values() const;

  void leave();  // the plan is of something else: what follows is evicted, or kept
  void end();    // before backward

  bool diverged() const { return diverged_; }  // the pass was not what the plan was made for
  const std::string& difference() const { return difference_; }  // what it did instead

 private:
  void keep_in_replays(const Record& record);
  void record_node(const Record& record);
  void sum_leaf_gradients();
  uint32_t value_of(const Edge& edge);

  Tape& tape_;
  const Recompute& recompute_;
  RecordedGraph* record_;
  const int64_t first_;
  size_t next_segment_ = 0;                                  // of the plan
  std::vector<std::pair<uint32_t, Segments::Handle>> open_;  // last record, segment on the tape
  std::vector<Segments::Handle> handles_;                    // by segment of the plan
  std::vector<uint32_t> keeps_;  // by record of the plan: bits of outputs
  // By record of the plan: outputs that replays keep.
  std::unordered_multimap<size_t, Recompute::Output> replay_keeps_;
  bool diverged_ = false;
  std::string difference_;
  std::optional<Segments::Handle> evicting_;
  std::unordered_map<uint64_t, uint32_t> values_;  // root -> value of the graph
  uint64_t live_before_ = 0;
  // By leaf: the last record that reads it, whose vjp is the first to make its gradient, and its
  // bytes.
  std::unordered_map<const TensorImpl*, std::pair<size_t, uint64_t>> leaves_;
};

// The forward passes of this thread that are made while it lives: each goes from its first op that
// wants a gradient to its backward(), to where all of it has been dropped, or to the end of the
// scope. It may stand around one pass, or around a whole training loop. Marks in models
// (CheckpointScope) are ignored.
class [[nodiscard]] RecomputeScope : public Tape::Follower {
 public:
  // `record`: receives the graph of the first pass and outlives the scope; null: nobody wants it.
  // AutogradError inside a segment or another such scope.
  explicit RecomputeScope(Recompute recompute, RecordedGraph* record = nullptr);
  ~RecomputeScope() override;
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

  // Where nothing is replayed nor recorded, it is the plain pass: an op without a gradient that is
  // on the tape keeps what its inputs' records save.
  bool records_all() const override {
    const bool wants = record_ || recompute_.evicts || !recompute_.segments.empty();
    return wants && pass_ && !tape_->is_empty();
  }
  void before_record(Tape& tape, const Op& op) override;
  void after_record(const Record& record) override { pass_->after_record(record); }
  uint32_t kept_outputs() const override { return pass_->kept_outputs(); }
  void before_backward(Tape& tape, const Tensor& root, bool retains) override;

  // A pass did not do what the plan was made for; what the first such one did instead.
  bool diverged() const { return !difference().empty(); }
  const std::string& difference() const {
    return pass_ && difference_.empty() ? pass_->difference() : difference_;
  }

 private:
  void end_pass();

  const Recompute recompute_;
  RecordedGraph* record_;  // of the first pass that runs backward; null: is recorded
  std::shared_ptr<Tape> tape_;
  Tape::Follower* outer_ = nullptr;
  std::optional<RecomputePass> pass_;  // that is open
  std::string difference_;
};

// A scope that recomputes as the plan says.
inline RecomputeScope checkpoint(Recompute recompute) {
  return RecomputeScope(std::move(recompute));
}

// While it lives, what the device has from its driver (`reserved` bytes, those of blocks) stays
// within the budget: values of this thread's evicting forward passes are dropped, and others move
// where free bytes lie scattered. OutOfMemory where nothing is left to drop. The budget before it
// is back when it ends.
class MemoryBudget {
 public:
  // `advice`: what OutOfMemory says then.
  explicit MemoryBudget(uint64_t bytes, const std::shared_ptr<Device>& device = default_device(),
                        std::function<std::string()> advice = {});
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

 private:
  std::shared_ptr<Device> device_;
  Device::Budget previous_;
};

}  // namespace rw
