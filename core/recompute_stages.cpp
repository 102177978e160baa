// What the stages of a recorded chain cost and weigh.
#include <algorithm>

#include "core/recompute_chain.h"

namespace rw {

namespace {

// Values that cross this many stages unsaved (skips of a U-Net) count as held from their record on.
// Shorter ones (a residual block's input) are paid for only where a child segment holds them.
constexpr uint32_t long_skip = 12;

}  // namespace

class Stages::Builder {
 public:
  Builder(Stages& stages, const RecomputeGraph& graph, const std::vector<ValueUse>& uses)
      : out_(stages), graph_(graph), uses_(uses), n_(stages.count()) {
    out_.stages.resize(n_);
    index_values();
    sum_crossings();
    for (uint32_t i = 0; i < n_; ++i) {
      measure_bytes(i);
      measure_backward(i);
      measure_costs(i);
    }
    find_sweep_peaks();
  }

 private:
  static constexpr uint32_t outside = UINT32_MAX;
  struct Local {
    uint32_t stage = outside;     // that makes it
    int32_t last_reader = -1;     // in the range
    int32_t first_saver = -1;     // in its stage
    int32_t last_saver = -1;      // in the range
    bool held = false;            // while plain records run after it
    bool needed = false;          // in the replay at hand
    uint32_t gradient = outside;  // stage in whose backward it has a gradient
  };

  uint32_t begin(uint32_t i) const { return out_.positions[i]; }
  uint32_t end(uint32_t i) const { return out_.positions[i + 1]; }
  uint64_t bytes(uint32_t v) const { return graph_.values[v].bytes; }
  // Values made in the range are numbered one after another.
  bool is_local(uint32_t v) const { return uses_[v].rank - first_rank_ < local_.size(); }
  Local& local(uint32_t v) { return local_[uses_[v].rank - first_rank_]; }
  const Local& local(uint32_t v) const { return local_[uses_[v].rank - first_rank_]; }
  bool made_in(uint32_t v, uint32_t i) const { return is_local(v) && local(v).stage == i; }
  bool crosses_end(uint32_t v, uint32_t i) const {
    return local(v).last_reader >= static_cast<int32_t>(end(i));
  }

  template <class F>
  void for_each_made(uint32_t i, F&& f) const {
    for (uint32_t r = begin(i); r < end(i); ++r)
      for (uint32_t v : graph_.records[r].outputs) f(v);
  }

  void index_values() {
    uint32_t end_rank = 0;
    for (uint32_t i = 0; i < n_; ++i)
      for_each_made(i, [&](uint32_t v) {
        first_rank_ = std::min(first_rank_, uses_[v].rank);
        end_rank = uses_[v].rank + 1;
      });
    local_.resize(end_rank > first_rank_ ? end_rank - first_rank_ : 0);
    for (uint32_t i = 0; i < n_; ++i) {
      for_each_made(i, [&](uint32_t v) { local(v).stage = i; });
      for (uint32_t r = begin(i); r < end(i); ++r) {
        const GraphRecord& record = graph_.records[r];
        for (uint32_t v : record.inputs)
          if (is_local(v)) local(v).last_reader = static_cast<int32_t>(r);
        if (!record.reached) continue;
        for (uint32_t v : record.saved) {
          if (!is_local(v)) continue;
          local(v).held = true;
          local(v).last_saver = static_cast<int32_t>(r);
          if (made_in(v, i) && local(v).first_saver < 0)
            local(v).first_saver = static_cast<int32_t>(r);
        }
      }
    }
  }

  uint32_t stage_of(int32_t record) const {
    const auto& p = out_.positions;
    const auto after = std::upper_bound(p.begin(), p.end(), static_cast<uint32_t>(record));
    return static_cast<uint32_t>(after - p.begin()) - 1;
  }

  void sum_crossings() {
    const uint32_t width = n_ + 1;
    std::vector<uint64_t> all(n_ * width), held(n_ * width);  // by stages of maker and last user
    for (uint32_t i = 0; i < n_; ++i)
      for_each_made(i, [&](uint32_t v) {
        if (!crosses_end(v, i)) return;
        const uint32_t z = stage_of(local(v).last_reader);
        const bool is_long = z - i >= long_skip;
        local(v).held |= is_long;
        all[i * width + z] += bytes(v);
        if (local(v).held)
          held[i * width + (is_long ? z : stage_of(local(v).last_saver))] += bytes(v);
        else
          for (uint32_t k = i + 1; k <= z; ++k) out_.stages[k].dropped += bytes(v);
      });
    out_.crossing_all = sum_rectangles(all);
    out_.crossing_saved = sum_rectangles(held);
  }

  // [s][j]: the values made in stages [s, j) and used in stage j or later.
  std::vector<uint64_t> sum_rectangles(const std::vector<uint64_t>& by_stages) const {
    const uint32_t width = n_ + 1;
    std::vector<uint64_t> suffix = by_stages, sums(width * width);
    for (uint32_t a = 0; a < n_; ++a)
      for (uint32_t z = n_; z-- > 0;) suffix[a * width + z] += suffix[a * width + z + 1];
    for (uint32_t j = 1; j <= n_; ++j)
      for (uint32_t s = j; s-- > 0;)
        sums[s * width + j] = sums[(s + 1) * width + j] + suffix[s * width + j];
    return sums;
  }

  void measure_bytes(uint32_t i) {
    Stage& stage = out_.stages[i];
    for_each_made(i, [&](uint32_t v) {
      if (local(v).held) stage.saved += bytes(v);
    });
    stage.forward_peak = forward_peak(i, stage.dropped, true);
    stage.drop_peak = forward_peak(i, 0, false);
  }

  uint64_t forward_peak(uint32_t i, uint64_t live, bool saves) const {
    uint64_t peak = live;
    std::vector<uint32_t> freed;
    for (uint32_t r = begin(i); r < end(i); ++r) {
      const GraphRecord& record = graph_.records[r];
      for (uint32_t v : record.outputs) live += bytes(v);
      peak = std::max(peak, live + record.workspace);
      freed = record.inputs;
      freed.insert(freed.end(), record.outputs.begin(), record.outputs.end());
      std::sort(freed.begin(), freed.end());
      freed.erase(std::unique(freed.begin(), freed.end()), freed.end());
      for (uint32_t v : freed)
        if (made_in(v, i) && local(v).last_reader <= static_cast<int32_t>(r) &&
            !(saves && local(v).held))
          live -= bytes(v);
    }
    return peak;
  }

  // The stage's own backward, with the gradients of all that crosses its end.
  void measure_backward(uint32_t i) {
    Stage& stage = out_.stages[i];
    update_crossing_gradients(i);
    for (uint32_t v : crossing_gradients_) stage.gradients += bytes(v);
    uint64_t live = stage.gradients;
    for (uint32_t v : crossing_gradients_) local(v).gradient = i;
    std::vector<uint32_t> outer;  // gradients of values from before the range
    for_each_made(i, [&](uint32_t v) {
      if (local(v).first_saver >= 0) live += bytes(v);
    });
    stage.backward_peak = live;
    for (uint32_t r = end(i); r-- > begin(i);) {
      const GraphRecord& record = graph_.records[r];
      if (!record.reached) continue;
      const auto& outputs = record.outputs;
      const bool is_root = std::none_of(outputs.begin(), outputs.end(),
                                        [&](uint32_t v) { return local(v).gradient == i; });
      if (is_root)
        for (uint32_t v : outputs) {
          live += bytes(v);
          local(v).gradient = i;
        }
      uint64_t made = record.workspace, fresh = 0;
      for (uint32_t v : record.inputs) {
        if (graph_.values[v].record < 0 || !uses_[v].has_gradient) continue;
        if (!outputs.empty()) made += bytes(v);   // a view's gradient is a view
        if (has_gradient(v, i, outer)) continue;  // it is added to the one there is
        fresh += bytes(v);
        if (is_local(v))
          local(v).gradient = i;
        else
          outer.push_back(v);
      }
      stage.backward_peak = std::max(stage.backward_peak, live + made);
      live += fresh;
      for (uint32_t v : outputs)
        if (local(v).gradient == i) live -= bytes(v);
      release_saved(record, i, r, live);
    }
  }

  bool has_gradient(uint32_t v, uint32_t i, const std::vector<uint32_t>& outer) const {
    if (is_local(v)) return local(v).gradient == i;
    return std::find(outer.begin(), outer.end(), v) != outer.end();
  }

  void release_saved(const GraphRecord& record, uint32_t i, uint32_t r, uint64_t& live) {
    for (uint32_t v : record.saved)
      if (made_in(v, i) && local(v).first_saver == static_cast<int32_t>(r)) {
        live -= bytes(v);
        local(v).first_saver = -2;  // once, should it be listed twice
      }
  }

  void update_crossing_gradients(uint32_t i) {
    for_each_made(i, [&](uint32_t v) {
      if (uses_[v].has_gradient) crossing_gradients_.push_back(v);
    });
    std::erase_if(crossing_gradients_,
                  [&](uint32_t v) { return uses_[v].last_reader < static_cast<int32_t>(end(i)); });
  }

  void measure_costs(uint32_t i) {
    Stage& stage = out_.stages[i];
    const auto crosses = [&](uint32_t v) { return crosses_end(v, i); };
    const auto saved = [&](uint32_t v) { return local(v).first_saver != -1; };
    // What crosses is still held by the segment that read it when this one is replayed.
    const auto saved_alone = [&](uint32_t v) {
      return saved(v) && uses_[v].last_reader < static_cast<int32_t>(end(i));
    };
    stage.sweep = cost_to_make(i, crosses);
    stage.replay = cost_to_make(i, [&](uint32_t v) { return saved(v) || crosses(v); });
    stage.unaided_tail = cost_to_make(i, saved);
    stage.tail = cost_to_make(i, saved_alone);
    for_each_made(i, [&](uint32_t v) {
      if (local(v).needed && uses_[v].is_heavy) stage.kept.push_back(v);
    });
    for (uint32_t v : stage.kept)
      if (!crosses(v)) stage.kept_bytes += bytes(v);
    at_hand_ = stage.kept;
    std::sort(at_hand_.begin(), at_hand_.end());
    stage.kept_tail = cost_to_make(i, saved_alone);
    at_hand_.clear();
  }

  // Of the records of stage i that make the values for which `wanted` holds. Marks what is needed.
  template <class F>
  double cost_to_make(uint32_t i, F&& wanted) {
    for_each_made(i, [&](uint32_t v) { local(v).needed = wanted(v); });
    double cost = 0;
    for (uint32_t r = end(i); r-- > begin(i);) {
      const GraphRecord& record = graph_.records[r];
      const bool runs = std::any_of(record.outputs.begin(), record.outputs.end(), [&](uint32_t v) {
        return local(v).needed && !std::binary_search(at_hand_.begin(), at_hand_.end(), v);
      });
      if (!runs) continue;
      cost += record.cost;
      for (uint32_t v : record.inputs)
        if (made_in(v, i)) local(v).needed = true;
    }
    return cost;
  }

  void find_sweep_peaks() {
    out_.sweep_peaks.resize((n_ + 1) * (n_ + 1));
    for (uint32_t s = 0; s < n_; ++s) {
      uint64_t peak = 0;
      for (uint32_t i = s; i < n_; ++i) {
        peak = std::max(peak, (i > s ? out_.crossing(s, i) : 0) + out_.stages[i].drop_peak);
        out_.sweep_peaks[s * (n_ + 1) + i + 1] = peak;
      }
    }
  }

  Stages& out_;
  const RecomputeGraph& graph_;
  const std::vector<ValueUse>& uses_;
  uint32_t n_;
  uint32_t first_rank_ = outside;
  std::vector<Local> local_;  // by rank
  std::vector<uint32_t> crossing_gradients_, at_hand_;
};

Stages::Stages(const RecomputeGraph& graph, const std::vector<ValueUse>& uses,
               std::vector<uint32_t> cuts)
    : positions(std::move(cuts)) {
  Builder(*this, graph, uses);
}

}  // namespace rw
