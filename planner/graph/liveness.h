// The one model of what is alive while records run, run again, and have their gradients computed:
// reference counts instead of tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph.h"

namespace rw {

// The liveness of records [first, last). Values that other records make have no weight here, but
// their gradients do.
class Liveness {
 public:
  Liveness(const Graph& graph, uint32_t first, uint32_t last);

  uint64_t live() const { return live_; }  // the bytes that are live now
  uint64_t peak() const { return peak_; }  // the most bytes that were live at once so far
  bool makes(uint32_t v) const {
    return graph_.values[v].record >= static_cast<int32_t>(first_) &&
           graph_.values[v].record < static_cast<int32_t>(last_);
  }

  void hold(uint32_t v) {
    if (makes(v) && states_[v - base_].references++ == 0) live_ += graph_.values[v].bytes;
  }
  void release(uint32_t v) {
    if (!makes(v)) return;
    State& state = states_[v - base_];
    if (--state.references == 0) live_ -= graph_.values[v].bytes - std::exchange(state.away, 0);
  }
  // Sends a value away: `rest` bytes stay here in its place. False if nobody holds it. Whoever
  // reads it brings it back.
  bool swap_out(uint32_t v, uint64_t rest) {
    if (!makes(v) || states_[v - base_].references == 0) return false;
    State& state = states_[v - base_];
    if (state.away > 0) return true;
    touch(rest);
    state.away = graph_.values[v].bytes - rest;
    live_ -= state.away;
    return true;
  }
  void swap_in(uint32_t v) {
    if (!makes(v) || states_[v - base_].away == 0) return;
    const uint64_t away = std::exchange(states_[v - base_].away, 0);
    live_ += away;
    touch(graph_.values[v].bytes - away);
  }
  void hold_gradient(uint32_t v);
  // From now on, the gradients of leaves that the vjps of `record` and all later ones made are
  // alive.
  void arrive(uint32_t record) { leaf_gradients_ = graph_.gradients_from(record); }
  void touch(uint64_t transient = 0) {
    peak_ = std::max(peak_, live_ + leaf_gradients_ + transient);
  }

  // Returns the last record that reads a value in the current run, or -1.
  int32_t& reader(uint32_t v) { return states_[v - base_].reader; }

  // Runs a record: its outputs live until their last reader has run, or as long as they are held.
  void run(uint32_t record);

  // Returns the records of [begin, end), last first, that must run to make the wanted values that
  // are not at hand, and those that make their inputs in turn. Sets the readers of the values that
  // these make.
  template <class Wanted, class AtHand>
  std::vector<uint32_t> records_to_run(uint32_t begin, uint32_t end, Wanted&& wanted,
                                       AtHand&& at_hand);

  // Makes the gradients of what a record reads. A gradient lives from its first contribution to the
  // vjp of the value's record; saved values that are taken go before the gradients are made.
  void vjp(uint32_t record);

 private:
  struct State {
    uint32_t references = 0;
    int32_t reader = -1;
    bool has_gradient = false;
    uint64_t away = 0;  // bytes that are elsewhere
  };
  bool has_gradient(uint32_t v) const;
  bool wants_gradient(uint32_t v) const {
    const int32_t maker = graph_.values[v].record;
    return maker >= 0 && graph_.records[static_cast<size_t>(maker)].reached;
  }

  const Graph& graph_;
  uint32_t first_, last_;
  uint32_t base_ = UINT32_MAX;       // the least number of a value that the records make
  std::vector<State> states_;        // from that value on
  std::vector<uint32_t> gradients_;  // values of other records that have a gradient
  uint64_t live_ = 0, peak_ = 0, leaf_gradients_ = 0;
};

template <class Wanted, class AtHand>
std::vector<uint32_t> Liveness::records_to_run(uint32_t begin, uint32_t end, Wanted&& wanted,
                                               AtHand&& at_hand) {
  const auto is_inside = [&](uint32_t v) {
    return graph_.values[v].record >= static_cast<int32_t>(begin);
  };
  std::vector<uint32_t> order;
  for (uint32_t i = end; i-- > begin;) {
    const Graph::Record& record = graph_.records[i];
    if (std::none_of(record.outputs.begin(), record.outputs.end(),
                     [&](uint32_t v) { return (wanted(v) || reader(v) >= 0) && !at_hand(v); }))
      continue;
    order.push_back(i);
    for (uint32_t v : record.inputs)
      if (is_inside(v) && !at_hand(v)) reader(v) = std::max(reader(v), static_cast<int32_t>(i));
  }
  return order;
}

}  // namespace rw
