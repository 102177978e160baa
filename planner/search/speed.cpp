// Plans that hold the outputs of heavy ops and replay those of light ops.
#include "planner/search/speed.h"

#include <algorithm>
#include <set>

#include "planner/graph/evaluate.h"
#include "planner/graph/tuning.h"
#include "planner/graph/uses.h"

namespace rw {

namespace {

class SpeedPlanner {
 public:
  SpeedPlanner(const Graph& graph, const std::function<bool(uint32_t)>& is_heavy)
      : graph_(graph), uses_(value_uses(graph)), heavy_(graph.records.size()) {
    for (uint32_t i = 0; i < heavy_.size(); ++i) heavy_[i] = is_heavy(i);
  }

  Plan run() {
    const auto n = static_cast<uint32_t>(graph_.records.size());
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t v : graph_.records[i].outputs) add(v, i);
      if ((heavy_[i] && is_place_to_end(i + 1)) || i + 1 == n) close(i + 1);
    }
    return std::move(plan_);
  }

 private:
  uint64_t bytes(uint32_t v) const { return graph_.values[v].bytes; }
  bool is_read_after(uint32_t v, uint32_t end) const {
    return uses_[v].last_reader >= static_cast<int32_t>(end);
  }

  void add(uint32_t v, uint32_t record) {
    if (heavy_[record]) return;
    light_.push_back(v);
    if (uses_[v].saved) saved_ += bytes(v);
  }

  // Tells whether the next segment would have to hold little of what light records made.
  bool is_place_to_end(uint32_t end) const {
    uint64_t crossing = 0;
    for (uint32_t v : light_)
      if (is_read_after(v, end)) crossing += bytes(v);
    return 2 * crossing <= saved_;
  }

  void close(uint32_t end) {
    int64_t best_gain = 0;
    uint32_t first = end;
    for (uint32_t i = first_; i < std::min(end, first_ + tuning::most_trimmed); ++i)
      if (const int64_t gain = gain_of(i, end); gain > best_gain) {
        best_gain = gain;
        first = i;
      }
    if (first < end) {
      plan_.segments.push_back({first, end, -1});
      for (uint32_t v : kept_values(first, end)) plan_.keep.push_back(graph_.output(v));
    }
    first_ = end;
    saved_ = 0;
    light_.clear();
  }

  // Returns the heavy values that a replay would have to make again.
  std::vector<uint32_t> kept_values(uint32_t first, uint32_t end) const {
    std::set<uint32_t> read;
    for (uint32_t i = first; i < end; ++i) {
      const Graph::Record& record = graph_.records[i];
      read.insert(record.inputs.begin(), record.inputs.end());
      if (record.reached) read.insert(record.saved.begin(), record.saved.end());
    }
    std::vector<uint32_t> kept;
    for (uint32_t i = first; i < end; ++i)
      for (uint32_t v : graph_.records[i].outputs)
        if (heavy_[i] && read.contains(v)) kept.push_back(v);
    return kept;
  }

  // Returns the bytes that a segment [first, end) drops, less those that it holds and plain records
  // would not.
  int64_t gain_of(uint32_t first, uint32_t end) const {
    std::set<uint32_t> held;
    int64_t gain = 0;
    for (uint32_t i = first; i < end; ++i) {
      const Graph::Record& record = graph_.records[i];
      for (uint32_t v : record.inputs)
        if (graph_.values[v].record >= 0 && graph_.values[v].record < static_cast<int32_t>(first))
          held.insert(v);
      for (uint32_t v : record.outputs)
        if (!heavy_[i] && uses_[v].saved && !is_read_after(v, end))
          gain += static_cast<int64_t>(bytes(v));
    }
    for (uint32_t v : kept_values(first, end)) held.insert(v);
    for (uint32_t v : held)
      if (!uses_[v].saved) gain -= static_cast<int64_t>(bytes(v));
    return gain;
  }

  const Graph& graph_;
  std::vector<ValueUse> uses_;
  std::vector<bool> heavy_;
  Plan plan_;
  uint32_t first_ = 0;           // the first record of the open segment
  uint64_t saved_ = 0;           // bytes of its light records' values that vjps read
  std::vector<uint32_t> light_;  // these values
};

}  // namespace

Plan plan_speed(const Graph& graph, const std::function<bool(uint32_t record)>& is_heavy) {
  Plan plan = SpeedPlanner(graph, is_heavy).run();
  fill_in(graph, plan);
  return plan;
}

}  // namespace rw
