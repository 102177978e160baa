// One forward pass that follows a plan: the tape's segments are set by counting records.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "../../core/autograd/tape.h"
#include "../graph/graph.h"
#include "../graph/plan.h"
#include "op_times.h"

namespace rw {

// One forward pass on a tape, which sets the segments of a plan by counting records and observes
// what the pass does. The tape's follower passes every op to it.
class ForwardPass : public Tape::Follower {
 public:
  // Begins with record `first` of the tape, or with the next one. `plan` and `record` outlive the
  // pass; `record` receives its graph, or is null. `times` receives the times of its ops, likewise.
  ForwardPass(Tape& tape, const Plan& plan, Graph* record, int64_t first = -1,
              OpTimes* times = nullptr);

  void before_record(Tape& tape, const Op& op) override;
  void after_record(const Record& record, std::span<const Tensor> outputs) override;
  uint32_t kept_outputs() const override;

  // The values of the recorded pass that its outermost segments and the records outside them hold
  // when forward ends, by id, with the record that makes each.
  ByValue<int64_t> held_values() const;

  void leave();  // the plan is for something else: the rest is evicted or kept
  void end();    // must be called before backward

  bool diverged() const { return diverged_; }                    // the pass departed from its plan
  const std::string& difference() const { return difference_; }  // the op that it ran instead

 private:
  void keep_in_replays(const Record& record);
  void send_due(size_t end);
  void pack_waiting();
  bool only_vjps_read(const std::shared_ptr<Storage>& storage, int64_t maker) const;
  void record_node(const Record& record);
  void sum_leaf_gradients();
  uint32_t value_of(const Edge& edge);

  Tape& tape_;
  const Plan& plan_;
  Graph* record_;
  OpTimes* times_;
  const int64_t first_;
  size_t next_segment_ = 0;                                  // index in the plan
  std::vector<std::pair<uint32_t, Segments::Handle>> open_;  // last record, segment on the tape
  std::vector<Segments::Handle> handles_;                    // by segment of the plan
  std::vector<uint32_t> keeps_;  // by record of the plan: bits of outputs
  // By record of the plan: the outputs that replays keep.
  std::unordered_multimap<size_t, Plan::Output> replay_keeps_;
  // By record of the plan: the offloads of its outputs; by offload: the value, once it is made.
  std::unordered_multimap<size_t, size_t> offloads_;
  std::vector<std::weak_ptr<Storage>> offloaded_;
  size_t next_offload_ = 0;  // the first that has not happened
  // Offloads to 8 bits that wait until nobody but vjps can read the value, each with the number of
  // tensors that shared its storage when that was last found out.
  std::vector<std::pair<size_t, long>> waiting_;
  bool diverged_ = false;
  std::string difference_;
  std::optional<Segments::Handle> evicting_;
  std::unordered_map<uint64_t, uint32_t> values_;  // root -> value of the graph
  uint64_t live_before_ = 0;
  // By leaf: the last record that reads it, whose vjp is the first to make its gradient, and the
  // bytes of that gradient.
  std::unordered_map<const TensorImpl*, std::pair<size_t, uint64_t>> leaves_;
};

}  // namespace rw
