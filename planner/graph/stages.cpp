#include "planner/graph/stages.h"

#include <algorithm>

#include "planner/graph/tuning.h"

namespace rw {

class Stages::Builder {
 public:
  Builder(Stages& stages, const Graph& graph, const std::vector<ValueUse>& uses)
      : out_(stages), graph_(graph), uses_(uses), n_(stages.count()) {
    out_.stages.resize(n_);
    index_values();
    sum_crossings();
    for (uint32_t i = 0; i < n_; ++i) {
      measure_bytes(i);
      measure_backward(i);
    }
    find_sweep_peaks();
  }

 private:
  static constexpr uint32_t outside = UINT32_MAX;
  struct Local {
    int32_t last_reader = -1;  // in the range
    int32_t last_saver = -1;   // in the range
    bool held = false;         // while plain records run after it
  };

  uint32_t begin(uint32_t i) const { return out_.positions[i]; }
  uint32_t end(uint32_t i) const { return out_.positions[i + 1]; }
  uint64_t bytes(uint32_t v) const { return graph_.values[v].bytes; }
  // Values made in the range have consecutive numbers.
  bool is_local(uint32_t v) const { return uses_[v].rank - first_rank_ < local_.size(); }
  Local& local(uint32_t v) { return local_[uses_[v].rank - first_rank_]; }
  const Local& local(uint32_t v) const { return local_[uses_[v].rank - first_rank_]; }
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
    out_.kept_before.assign(n_ + 1, 0);
    for (uint32_t i = 0; i < n_; ++i) {
      for_each_made(i, [&](uint32_t v) {
        local(v).held = out_.is_kept(v);
        if (local(v).held) out_.kept_before[i + 1] += bytes(v);
      });
      out_.kept_before[i + 1] += out_.kept_before[i];
      for (uint32_t r = begin(i); r < end(i); ++r) {
        const Graph::Record& record = graph_.records[r];
        for (uint32_t v : record.inputs)
          if (is_local(v)) local(v).last_reader = static_cast<int32_t>(r);
        if (!record.reached) continue;
        for (uint32_t v : record.saved) {
          if (!is_local(v)) continue;
          local(v).held = true;
          local(v).last_saver = static_cast<int32_t>(r);
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
        if (out_.is_kept(v)) {
          all[i * width + n_] += bytes(v);
          held[i * width + n_] += bytes(v);
          return;
        }
        if (!crosses_end(v, i)) return;
        const uint32_t last = stage_of(local(v).last_reader);
        const uint32_t saver = local(v).held ? stage_of(local(v).last_saver) : i;
        all[i * width + last] += bytes(v);
        held[i * width + saver] += bytes(v);
        // Plain records hold what they made and saved, and most of that is what they made last.
        const uint32_t first = local(v).held ? std::max(saver + 1, i + 2) : i + 1;
        for (uint32_t k = first; k <= last; ++k) out_.stages[k].dropped += bytes(v);
      });
    out_.crossing_all = sum_rectangles(all);
    out_.crossing_saved = sum_rectangles(held);
  }

  // Entry [s][j] is the bytes of values made in stages [s, j) and used in stage j or later.
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
      if (!local(v).held) return;
      stage.saved += bytes(v);
      const bool fits = graph_.can_quantize(v);
      stage.quantized += fits ? graph_.values[v].quantized : bytes(v);
      if (fits) stage.quantize_cost += graph_.quantize_cost(v);
    });
    stage.forward_peak = stage.dropped + forward_peak(i, true);
    stage.drop_peak = forward_peak(i, false);
  }

  uint64_t forward_peak(uint32_t i, bool saves) const {
    Liveness live(graph_, begin(i), end(i));
    for_each_made(i, [&](uint32_t v) { live.reader(v) = local(v).last_reader; });
    for (uint32_t r = begin(i); r < end(i); ++r) {
      if (saves)
        for (uint32_t v : graph_.records[r].outputs)
          if (local(v).held) live.hold(v);
      live.run(r);
    }
    return live.peak();
  }

  // Measures the stage's own backward, with the gradients of all values that cross its end, and its
  // costs.
  void measure_backward(uint32_t i) {
    Stage& stage = out_.stages[i];
    RecordRange range(graph_, uses_, begin(i), end(i));
    update_crossing_gradients(i);
    stage.crossing_gradients = crossing_gradients_;
    stage.gradients = graph_.gradients_from(end(i));
    for (uint32_t v : crossing_gradients_) stage.gradients += bytes(v);
    stage.backward_peak = range.backward_peak(crossing_gradients_);
    const auto crosses = [&](uint32_t v) { return range.crosses_end(v); };
    const auto saved = [&](uint32_t v) { return range.saves(v); };
    const auto kept = [&](uint32_t v) { return out_.is_kept(v); };
    stage.replay = range.cost_to_make([&](uint32_t v) { return saved(v) || crosses(v); }, kept);
    stage.unaided_tail = range.cost_to_make(saved, kept);
    // When this segment is replayed, the segment that read a crossing value still holds it.
    stage.tail = range.cost_to_make([&](uint32_t v) { return saved(v) && !crosses(v); }, kept);
  }

  void update_crossing_gradients(uint32_t i) {
    for_each_made(i, [&](uint32_t v) {
      if (uses_[v].has_gradient) crossing_gradients_.push_back(v);
    });
    std::erase_if(crossing_gradients_,
                  [&](uint32_t v) { return uses_[v].last_reader < static_cast<int32_t>(end(i)); });
  }

  void find_sweep_peaks() {
    const uint32_t width = n_ + 1;
    out_.sweep_peaks.resize(width * width);
    out_.replay_peaks.resize(width * width);
    for (uint32_t s = 0; s < n_; ++s) {
      uint64_t peak = 0, replay_peak = 0;
      for (uint32_t i = s; i < n_; ++i) {
        const uint64_t crossing = i > s ? out_.crossing(s, i) : 0;
        peak = std::max(peak, crossing + out_.stages[i].drop_peak);
        replay_peak =
            std::max(replay_peak, crossing - out_.kept_bytes(s, i) + out_.stages[i].drop_peak);
        out_.sweep_peaks[s * width + i + 1] = peak;
        out_.replay_peaks[s * width + i + 1] = replay_peak;
      }
    }
  }

  Stages& out_;
  const Graph& graph_;
  const std::vector<ValueUse>& uses_;
  uint32_t n_;
  uint32_t first_rank_ = outside;
  std::vector<Local> local_;  // by rank
  std::vector<uint32_t> crossing_gradients_;
};

void Stages::add_keep_options(const Graph& graph, const std::vector<ValueUse>& uses) {
  kept.resize(count());
  KnownOptions known;
  for (uint32_t s = 0; s < count(); ++s)
    for (uint32_t j = s + 1; j <= std::min(count(), s + tuning::longest_options); ++j) {
      if (j > s + 1 && positions[j] - positions[s] > tuning::most_option_records) break;
      kept[s].push_back(known.of(RecordRange(graph, uses, positions[s], positions[j]),
                                 stages[j - 1].crossing_gradients));
    }
}

Stages::Stages(const Graph& graph, const std::vector<ValueUse>& uses, std::vector<uint32_t> cuts,
               std::vector<bool> kept)
    : positions(std::move(cuts)), kept_values(std::move(kept)) {
  Builder(*this, graph, uses);
}

StageLevels::StageLevels(const Graph& graph, const std::vector<ValueUse>& uses,
                         const std::vector<uint32_t>& positions,
                         std::vector<std::vector<bool>> kept) {
  levels_.emplace_back(graph, uses, positions);
  if (!kept.empty()) levels_[0].add_keep_options(graph, uses);
  for (std::vector<bool>& values : kept)
    levels_.emplace_back(graph, uses, positions, std::move(values));
  const uint32_t n = levels_[0].count();
  sweeps_.resize(size_t{size()} * size() * n);
  for (uint32_t i = 0; i < n; ++i) {
    const RecordRange range(graph, uses, positions[i], positions[i + 1]);
    for (uint32_t from = 0; from < size(); ++from)
      for (uint32_t to = from; to < size(); ++to)
        sweeps_[(size_t{from} * size() + to) * n + i] = range.cost_to_make(
            [&](uint32_t v) { return range.crosses_end(v) || levels_[to].is_kept(v); },
            [&](uint32_t v) { return levels_[from].is_kept(v); });
  }
}

}  // namespace rw
