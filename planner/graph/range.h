// A range of records as one unit of a recompute plan: the cost of recomputing its values, and the
// bytes that its backward holds.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph.h"
#include "liveness.h"
#include "uses.h"

namespace rw {

// One way to drop a range in forward and to replay it in backward.
struct KeepOption {
  std::vector<uint32_t> kept;  // heavy values that are kept
  uint64_t bytes = 0;          // of the kept values that do not cross the range's end
  uint64_t peak = 0;           // the most bytes alive in its replay and backward
  // The cost of its replay. A segment that follows the range holds the values that cross into it;
  // if plain records follow, nobody holds them, and the replay recomputes them: unaided_cost.
  double cost = 0;
  double unaided_cost = 0;
};

class RecordRange {
 public:
  // Records [first, last).
  RecordRange(const Graph& graph, const std::vector<ValueUse>& uses, uint32_t first, uint32_t last);

  bool saves(uint32_t v) const { return saved_[v - base_]; }
  bool crosses_end(uint32_t v) const { return uses_[v].last_reader >= static_cast<int32_t>(last_); }

  // Returns the cost of the range's records that must run to make the values for which wanted(v)
  // holds, if those for which at_hand(v) holds need not be made.
  template <class Wanted, class AtHand>
  double cost_to_make(Wanted&& wanted, AtHand&& at_hand) const;
  template <class Wanted>
  double cost_to_make(Wanted&& wanted) const {
    return cost_to_make(wanted, [](uint32_t) { return false; });
  }

  // Returns the most bytes alive in its backward: saved values made inside, and gradients.
  // `crossing` has the values that cross its end.
  uint64_t backward_peak(const std::vector<uint32_t>& crossing) const;

  // Returns ways to keep the heavy values that its backward needs: the most expensive one per byte,
  // the two most expensive ones, and so on.
  std::vector<KeepOption> keep_options(const std::vector<uint32_t>& crossing) const;

  // Returns numbers that are the same for ranges that differ only in where they lie, such as those
  // of equal layers: their options differ by first_value() and leaf_gradients().
  std::vector<uint64_t> shape(const std::vector<uint32_t>& crossing) const;
  uint32_t first_value() const { return base_; }  // the least number of a value made here
  // The bytes of gradients of leaves that are alive before its backward.
  uint64_t leaf_gradients() const { return graph_.gradients_from(last_); }

  template <class F>
  void for_each_made(F&& body) const {
    for (uint32_t r = first_; r < last_; ++r)
      for (uint32_t v : graph_.records[r].outputs) body(v);
  }

 private:
  template <class Wanted, class AtHand>
  uint64_t replay_peak(const std::vector<uint32_t>& crossing, Wanted&& wanted,
                       AtHand&& at_hand) const;

  const Graph& graph_;
  const std::vector<ValueUse>& uses_;
  uint32_t first_, last_;
  uint32_t base_ = UINT32_MAX;  // the least number of a value made here
  std::vector<bool> saved_;     // by value, from `base_` on: whether records inside save it
};

// The options of ranges, each found once for all ranges of its shape.
class KnownOptions {
 public:
  // Returns range.keep_options(crossing).
  std::vector<KeepOption> of(const RecordRange& range, const std::vector<uint32_t>& crossing);

 private:
  struct Known {
    uint32_t first_value = 0;
    uint64_t leaf_gradients = 0;
    std::vector<KeepOption> options;
  };
  std::map<std::vector<uint64_t>, Known> known_;  // by shape
};

template <class Wanted, class AtHand>
double RecordRange::cost_to_make(Wanted&& wanted, AtHand&& at_hand) const {
  double cost = 0;
  Liveness live(graph_, first_, last_);
  for (uint32_t r : live.records_to_run(first_, last_, wanted, at_hand))
    cost += graph_.records[r].cost;
  return cost;
}

}  // namespace rw
