// A range of records as one unit of a recompute plan: what making its values again costs, and how
// many bytes its backward holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rewind/core/recompute/graph.h"
#include "rewind/core/recompute/uses.h"

namespace rw {

// One way to drop a range in forward and to replay it in backward.
struct KeepOption {
  std::vector<uint32_t> kept;  // heavy values that stay
  uint64_t bytes = 0;          // of the kept values that do not cross the range's end
  uint64_t peak = 0;           // bytes alive in its replay and backward
  // Cost of its replay. A segment that follows the range holds the values that cross into it; if
  // plain records follow, nobody holds them, and the replay makes them again: unaided_cost.
  double cost = 0;
  double unaided_cost = 0;
};

class RecordRange {
 public:
  // Records [first, last).
  RecordRange(const RecomputeGraph& graph, const std::vector<ValueUse>& uses, uint32_t first,
              uint32_t last);

  bool makes(uint32_t v) const { return uses_[v].rank - first_rank_ < values_.size(); }
  bool saves(uint32_t v) const { return values_[uses_[v].rank - first_rank_].first_saver >= 0; }
  bool crosses_end(uint32_t v) const { return uses_[v].last_reader >= static_cast<int32_t>(last_); }

  // Of the range's records that have to run to make the values for which wanted(v) holds, when
  // those in `at_hand` need not be made.
  template <class F>
  double cost_to_make(F&& wanted, const std::vector<uint32_t>& at_hand = {});

  // Bytes of its backward: saved values made inside, and gradients; `crossing` are those of values
  // that cross its end.
  uint64_t backward_peak(const std::vector<uint32_t>& crossing);

  // Keeping the heavy values that its backward needs: the dearest per byte, the two dearest, ...
  std::vector<KeepOption> keep_options(const std::vector<uint32_t>& crossing_gradients);

  template <class F>
  void for_each_made(F&& body) const {
    for (uint32_t r = first_; r < last_; ++r)
      for (uint32_t v : graph_.records[r].outputs) body(v);
  }

 private:
  struct Local {
    int32_t first_saver = -1;   // the first record whose vjp reads it: it dies there
    bool has_gradient = false;  // now
    bool is_needed = false;     // in the replay at hand
    bool is_at_hand = false;
    int32_t last_reader = -1;  // in that replay
  };
  Local& local(uint32_t v) { return values_[uses_[v].rank - first_rank_]; }
  uint64_t bytes(uint32_t v) const { return graph_.values[v].bytes; }
  bool is_made_again(uint32_t v) { return local(v).is_needed && !local(v).is_at_hand; }
  double cost_of_needed();
  uint64_t replay_peak(const std::vector<uint32_t>& crossing_gradients);
  uint64_t vjp_peak(uint32_t record, uint64_t& live);
  uint64_t released(std::span<const uint32_t> saved, int32_t record) const;

  const RecomputeGraph& graph_;
  const std::vector<ValueUse>& uses_;
  uint32_t first_, last_;
  uint32_t first_rank_ = UINT32_MAX;
  std::vector<Local> values_;    // by rank
  std::vector<uint32_t> outer_;  // values from before the range that have a gradient
};

template <class F>
double RecordRange::cost_to_make(F&& wanted, const std::vector<uint32_t>& at_hand) {
  for_each_made([&](uint32_t v) {
    local(v).is_needed = wanted(v);
    local(v).is_at_hand = false;
  });
  for (uint32_t v : at_hand) local(v).is_at_hand = true;
  return cost_of_needed();
}

}  // namespace rw
