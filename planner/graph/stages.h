// The costs and sizes of the stages of a recorded chain.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.h"
#include "range.h"
#include "uses.h"

namespace rw {

// The bytes and costs of the stages between `positions`. A value crosses cut j if it is made before
// positions[j] and read after it. Values that cross the first cut exist already and cost nothing.
struct Stages {
  // `kept` marks, by value, those that exist from the forward pass to the backward of their stage,
  // so that no replay makes them. Empty if there are none.
  Stages(const Graph& graph, const std::vector<ValueUse>& uses, std::vector<uint32_t> positions,
         std::vector<bool> kept = {});

  uint32_t count() const { return static_cast<uint32_t>(positions.size()) - 1; }
  // The bytes of the values that cross cut j but not cut s < j, and of the kept ones made between:
  // a child segment [s, j) must hold them.
  uint64_t crossing(uint32_t s, uint32_t j) const { return crossing_all[s * (count() + 1) + j]; }
  // The bytes of those among them that plain records after cut j save for their vjps.
  uint64_t crossing_held(uint32_t s, uint32_t j) const {
    return crossing_saved[s * (count() + 1) + j];
  }
  // Ways to run [s, j) as one segment that keeps some of its values, for j up to s +
  // tuning::longest_options; after add_keep_options().
  const std::vector<KeepOption>& keep_options(uint32_t s, uint32_t j) const {
    static const std::vector<KeepOption> none;
    return s < kept.size() && j - s <= kept[s].size() ? kept[s][j - s - 1] : none;
  }
  void add_keep_options(const Graph& graph, const std::vector<ValueUse>& uses);

  // The most bytes alive while [s, j) runs for the first time and drops everything but the kept
  // values.
  uint64_t sweep_peak(uint32_t s, uint32_t j) const { return sweep_peaks[s * (count() + 1) + j]; }
  // The same while it runs again: all kept values exist, and those of the range do not count here.
  uint64_t replay_peak(uint32_t s, uint32_t j) const { return replay_peaks[s * (count() + 1) + j]; }
  // The bytes of the kept values made in stages [s, j).
  uint64_t kept_bytes(uint32_t s, uint32_t j) const { return kept_before[j] - kept_before[s]; }
  bool is_kept(uint32_t v) const { return v < kept_values.size() && kept_values[v]; }

  struct Stage {
    uint64_t saved = 0;  // bytes that stay if it runs as plain records
    // The same with these values in 8 bits as far as that is allowed, and the cost of it.
    uint64_t quantized = 0;
    double quantize_cost = 0;
    // The bytes that cross into it and that no vjp reads from there on, except for what the
    // previous stage made and saved: only a child segment that begins with it holds them.
    uint64_t dropped = 0;
    uint64_t forward_peak = 0;   // the most bytes alive while it runs, beyond those alive before
    uint64_t drop_peak = 0;      // the same if it drops everything
    uint64_t backward_peak = 0;  // the most bytes alive in its backward: saved values and gradients
    uint64_t gradients = 0;      // bytes of gradients that cross its end, and of leaves after it
    // Cost of making the values that cross its end and its saved values.
    double replay = 0;
    // The cost of making only its saved values. A segment that follows holds the values that cross
    // its end; if plain records follow, these must be made as well: unaided_tail.
    double tail = 0;
    double unaided_tail = 0;
    std::vector<uint32_t> crossing_gradients;  // values whose gradients cross its end
  };
  std::vector<uint32_t> positions;
  std::vector<Stage> stages;

 private:
  class Builder;
  std::vector<std::vector<std::vector<KeepOption>>> kept;  // [s][j - s - 1]
  std::vector<bool> kept_values;
  std::vector<uint64_t> kept_before;  // by stage: bytes of kept values made before it
  std::vector<uint64_t> crossing_all, crossing_saved, sweep_peaks, replay_peaks;
};

// The same stages with more and more kept values; level 0 has none.
class StageLevels {
 public:
  // `kept` has one set for each level from 1 on, by value; each contains the previous one.
  StageLevels(const Graph& graph, const std::vector<ValueUse>& uses,
              const std::vector<uint32_t>& positions, std::vector<std::vector<bool>> kept = {});

  uint32_t size() const { return static_cast<uint32_t>(levels_.size()); }
  uint32_t count() const { return levels_[0].count(); }  // the number of stages
  const Stages& operator[](uint32_t level) const { return levels_[level]; }
  // The cost of running stage i if `from` is kept already: of making the values that cross its end,
  // and those that `to` keeps.
  double sweep(uint32_t from, uint32_t to, uint32_t i) const {
    return sweeps_[(size_t{from} * size() + to) * levels_[0].count() + i];
  }

 private:
  std::vector<Stages> levels_;
  std::vector<double> sweeps_;
};

}  // namespace rw
