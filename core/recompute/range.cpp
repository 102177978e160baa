#include "rewind/core/recompute/range.h"

#include <algorithm>
#include <span>

namespace rw {

namespace {

constexpr size_t most_options = 12;  // of kept values in one range

}  // namespace

RecordRange::RecordRange(const RecomputeGraph& graph, const std::vector<ValueUse>& uses,
                         uint32_t first, uint32_t last)
    : graph_(graph), uses_(uses), first_(first), last_(last) {
  uint32_t end_rank = 0;
  for_each_made([&](uint32_t v) {
    first_rank_ = std::min(first_rank_, uses_[v].rank);
    end_rank = uses_[v].rank + 1;
  });
  if (end_rank > first_rank_) values_.resize(end_rank - first_rank_);
  for (uint32_t r = first_; r < last_; ++r) {
    const GraphRecord& record = graph_.records[r];
    if (!record.reached) continue;
    for (uint32_t v : record.saved)
      if (makes(v) && local(v).first_saver < 0) local(v).first_saver = static_cast<int32_t>(r);
  }
}

double RecordRange::cost_of_needed() {
  double cost = 0;
  for (uint32_t r = last_; r-- > first_;) {
    const GraphRecord& record = graph_.records[r];
    if (std::none_of(record.outputs.begin(), record.outputs.end(),
                     [&](uint32_t v) { return is_made_again(v); }))
      continue;
    cost += record.cost;
    for (uint32_t v : record.inputs)
      if (makes(v)) local(v).is_needed = true;
  }
  return cost;
}

uint64_t RecordRange::backward_peak(const std::vector<uint32_t>& crossing) {
  uint64_t live = 0;
  outer_.clear();
  for_each_made([&](uint32_t v) {
    local(v).has_gradient = false;
    if (saves(v)) live += bytes(v);
  });
  for (uint32_t v : crossing) {
    live += bytes(v);
    if (makes(v))
      local(v).has_gradient = true;
    else
      outer_.push_back(v);
  }
  uint64_t peak = live + graph_.gradients_from(last_);
  for (uint32_t r = last_; r-- > first_;)
    if (graph_.records[r].reached) peak = std::max(peak, vjp_peak(r, live));
  return peak;
}

// Runs the record's vjp: what is alive at most, and `live` afterwards.
uint64_t RecordRange::vjp_peak(uint32_t r, uint64_t& live) {
  const GraphRecord& record = graph_.records[r];
  const auto has_gradient = [&](uint32_t v) {
    return makes(v) ? local(v).has_gradient
                    : std::find(outer_.begin(), outer_.end(), v) != outer_.end();
  };
  const auto& outputs = record.outputs;
  if (std::none_of(outputs.begin(), outputs.end(), has_gradient))  // the loss
    for (uint32_t v : outputs) {
      live += bytes(v);
      local(v).has_gradient = true;
    }
  uint64_t peak = live + record.workspace + graph_.gradients_from(r + 1);
  live -= released(record.saved_taken(), static_cast<int32_t>(r));
  uint64_t made = record.workspace + graph_.gradients_from(r), fresh = 0;
  for (uint32_t v : record.inputs) {
    if (graph_.values[v].record < 0 || !uses_[v].has_gradient) continue;
    if (!outputs.empty()) made += bytes(v);  // a view's gradient is a view
    if (has_gradient(v)) continue;           // it is added to the one there is
    fresh += bytes(v);
    if (makes(v))
      local(v).has_gradient = true;
    else
      outer_.push_back(v);
  }
  peak = std::max(peak, live + made);
  live += fresh;
  for (uint32_t v : outputs)
    if (local(v).has_gradient) live -= bytes(v);
  live -= released(record.saved_read(), static_cast<int32_t>(r));
  return peak;
}

// Bytes of the saved values that die with the record's vjp. One listed twice is saved once.
uint64_t RecordRange::released(std::span<const uint32_t> saved, int32_t record) const {
  uint64_t sum = 0;
  for (size_t k = 0; k < saved.size(); ++k) {
    const uint32_t v = saved[k];
    if (std::find(saved.begin(), saved.begin() + k, v) != saved.begin() + k) continue;
    if (makes(v) && values_[uses_[v].rank - first_rank_].first_saver == record) sum += bytes(v);
  }
  return sum;
}

// Bytes of the replay that cost_of_needed() has marked: gradients that wait, what is at hand, what
// it makes.
uint64_t RecordRange::replay_peak(const std::vector<uint32_t>& crossing_gradients) {
  uint64_t live = graph_.gradients_from(last_);
  for (uint32_t v : crossing_gradients) live += bytes(v);
  for_each_made([&](uint32_t v) {
    local(v).last_reader = -1;
    if (local(v).is_at_hand || (saves(v) && crosses_end(v))) live += bytes(v);
  });
  const auto runs = [&](uint32_t r) {
    const auto& outputs = graph_.records[r].outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](uint32_t v) { return is_made_again(v); });
  };
  for (uint32_t r = first_; r < last_; ++r)
    if (runs(r))
      for (uint32_t v : graph_.records[r].inputs)
        if (makes(v)) local(v).last_reader = static_cast<int32_t>(r);
  uint64_t peak = live;
  for (uint32_t r = first_; r < last_; ++r) {
    if (!runs(r)) continue;
    const GraphRecord& record = graph_.records[r];
    for (uint32_t v : record.outputs) live += bytes(v);
    peak = std::max(peak, live + record.workspace);
    for (uint32_t v : record.outputs)
      if (local(v).last_reader < 0 && !(saves(v) && is_made_again(v))) live -= bytes(v);
    for (uint32_t v : record.inputs) {
      if (!makes(v) || local(v).last_reader != static_cast<int32_t>(r)) continue;
      if (is_made_again(v) && !saves(v)) live -= bytes(v);
      local(v).last_reader = -1;  // an input may be listed twice
    }
  }
  return peak;
}

std::vector<KeepOption> RecordRange::keep_options(const std::vector<uint32_t>& crossing) {
  const auto saved = [&](uint32_t v) { return saves(v); };
  const auto saved_alone = [&](uint32_t v) { return saves(v) && !crosses_end(v); };
  cost_to_make(saved_alone);
  std::vector<uint32_t> heavy;
  for_each_made([&](uint32_t v) {
    if (local(v).is_needed && uses_[v].is_heavy) heavy.push_back(v);
  });
  std::stable_sort(heavy.begin(), heavy.end(), [&](uint32_t a, uint32_t b) {
    return graph_.cost_per_byte(a) > graph_.cost_per_byte(b);
  });
  const uint64_t peak = backward_peak(crossing);
  std::vector<KeepOption> options;
  KeepOption option;
  const size_t step = heavy.size() / most_options + 1;
  for (size_t k = 0; k < heavy.size(); ++k) {
    const uint32_t v = heavy[k];
    option.kept.push_back(v);
    if (!crosses_end(v)) option.bytes += bytes(v);
    if ((k + 1) % step != 0 && k + 1 < heavy.size()) continue;
    option.cost = cost_to_make(saved_alone, option.kept);
    option.peak = std::max(peak, replay_peak(crossing));
    option.unaided_cost = cost_to_make(saved, option.kept);
    options.push_back(option);
  }
  return options;
}

}  // namespace rw
