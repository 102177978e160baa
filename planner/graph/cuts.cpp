#include "planner/graph/cuts.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace rw {

namespace {

// Removes cuts one by one, beginning with those that many bytes cross and that separate little
// work.
class CutSelection {
 public:
  CutSelection(const Graph& graph, const std::vector<ValueUse>& uses, uint32_t first, uint32_t last)
      : first_(first), count_(last - first), crossing_(count_ + 1), weight_(count_) {
    double bytes = 0, cost = 0;
    std::vector<double> saved(count_);
    for (uint32_t i = 0; i < count_; ++i) {
      const Graph::Record& record = graph.records[first + i];
      cost += record.cost;
      for (uint32_t v : record.outputs) {
        if (uses[v].saved) saved[i] += static_cast<double>(graph.values[v].bytes);
        const auto last_reader = std::min<int64_t>(uses[v].last_reader, last - 1);
        if (last_reader <= first + i) continue;
        const auto crossing = static_cast<double>(graph.values[v].bytes);
        crossing_[i + 1] += crossing;
        crossing_[last_reader - first + 1] -= crossing;
      }
      bytes += saved[i];
    }
    std::partial_sum(crossing_.begin(), crossing_.end(), crossing_.begin());
    for (uint32_t i = 0; i < count_; ++i)
      weight_[i] = 1.0 / count_ + saved[i] / std::max(bytes, 1.0) +
                   (cost > 0 ? graph.records[first + i].cost / cost : 0);
  }

  std::vector<uint32_t> select(uint32_t limit) {
    next_.resize(count_ + 1);
    previous_.resize(count_ + 1);
    std::iota(next_.begin(), next_.end(), 1);
    std::iota(previous_.begin(), previous_.end(), -1);
    std::vector<double> newest(count_ + 1, -1);
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    const auto push = [&](uint32_t cut) {
      if (cut > 0 && cut < count_) queue.emplace(newest[cut] = worth(cut), cut);
    };
    for (uint32_t cut = 1; cut < count_; ++cut) push(cut);
    for (uint32_t stages = count_; stages > limit; --stages) {
      while (queue.top().first != newest[queue.top().second]) queue.pop();
      const uint32_t cut = queue.top().second;
      queue.pop();
      newest[cut] = -1;
      weight_[previous_[cut]] += weight_[cut];
      next_[previous_[cut]] = next_[cut];
      previous_[next_[cut]] = previous_[cut];
      push(previous_[cut]);
      push(next_[cut]);
    }
    std::vector<uint32_t> positions;
    for (uint32_t cut = 0; cut <= count_; cut = next_[cut]) positions.push_back(first_ + cut);
    return positions;
  }

 private:
  using Entry = std::pair<double, uint32_t>;  // worth, cut

  double worth(uint32_t cut) const {
    return (weight_[previous_[cut]] + weight_[cut]) / (1 + crossing_[cut] * crossing_[cut]);
  }

  uint32_t first_, count_;
  std::vector<double> crossing_;  // bytes, by cut
  std::vector<double> weight_;    // of the stage that starts at a cut
  std::vector<uint32_t> next_, previous_;
};

}  // namespace

std::vector<uint32_t> cut_into_stages(const Graph& graph, const std::vector<ValueUse>& uses,
                                      uint32_t first, uint32_t last, uint32_t limit) {
  return CutSelection(graph, uses, first, last).select(std::max(limit, 1u));
}

}  // namespace rw
