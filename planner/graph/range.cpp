#include "planner/graph/range.h"

#include <algorithm>
#include <bit>

#include "planner/graph/tuning.h"

namespace rw {

RecordRange::RecordRange(const Graph& graph, const std::vector<ValueUse>& uses, uint32_t first,
                         uint32_t last)
    : graph_(graph), uses_(uses), first_(first), last_(last) {
  uint32_t end = 0;
  for_each_made([&](uint32_t v) {
    base_ = std::min(base_, v);
    end = std::max(end, v + 1);
  });
  if (end > 0) saved_.resize(end - base_);
  for (uint32_t r = first_; r < last_; ++r)
    if (graph_.records[r].reached)
      for (uint32_t v : graph_.records[r].saved)
        if (graph_.values[v].record >= static_cast<int32_t>(first_)) saved_[v - base_] = true;
}

uint64_t RecordRange::backward_peak(const std::vector<uint32_t>& crossing) const {
  Liveness live(graph_, first_, last_);
  for (uint32_t r = first_; r < last_; ++r)
    if (graph_.records[r].reached)
      for (uint32_t v : graph_.records[r].saved) live.hold(v);
  for (uint32_t v : crossing) live.hold_gradient(v);
  live.arrive(last_);
  live.touch();
  for (uint32_t r = last_; r-- > first_;)
    if (graph_.records[r].reached) live.vjp(r);
  return live.peak();
}

// Peak of the replay that makes `wanted` values: the gradients that wait, the values at hand, and
// those that it makes.
template <class Wanted, class AtHand>
uint64_t RecordRange::replay_peak(const std::vector<uint32_t>& crossing, Wanted&& wanted,
                                  AtHand&& at_hand) const {
  Liveness live(graph_, first_, last_);
  const std::vector<uint32_t> order = live.records_to_run(first_, last_, wanted, at_hand);
  for (uint32_t v : crossing) live.hold_gradient(v);
  for_each_made([&](uint32_t v) {
    if (at_hand(v) || (saves(v) && crosses_end(v))) live.hold(v);
  });
  live.arrive(last_);
  live.touch();
  for (auto r = order.rbegin(); r != order.rend(); ++r) {
    for (uint32_t v : graph_.records[*r].outputs)
      if (saves(v) && !at_hand(v)) live.hold(v);
    live.run(*r);
  }
  return live.peak();
}

std::vector<KeepOption> RecordRange::keep_options(const std::vector<uint32_t>& crossing) const {
  const auto saved = [&](uint32_t v) { return saves(v); };
  // When this segment is replayed, the segment that read a crossing value still holds it.
  const auto saved_alone = [&](uint32_t v) { return saves(v) && !crosses_end(v); };
  std::vector<uint32_t> heavy;
  Liveness live(graph_, first_, last_);
  const auto nothing = [](uint32_t) { return false; };
  for (uint32_t r : live.records_to_run(first_, last_, saved_alone, nothing))
    for (uint32_t v : graph_.records[r].outputs)
      if (uses_[v].is_heavy && (saved_alone(v) || live.reader(v) >= 0)) heavy.push_back(v);
  std::sort(heavy.begin(), heavy.end(), [&](uint32_t a, uint32_t b) {
    const double of_a = graph_.cost_per_byte(a), of_b = graph_.cost_per_byte(b);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  const uint64_t peak = backward_peak(crossing);
  std::vector<KeepOption> options;
  KeepOption option;
  std::vector<bool> is_kept(saved_.size());
  const auto kept = [&](uint32_t v) { return is_kept[v - base_]; };
  const size_t step = heavy.size() / tuning::most_options + 1;
  for (size_t k = 0; k < heavy.size(); ++k) {
    const uint32_t v = heavy[k];
    option.kept.push_back(v);
    is_kept[v - base_] = true;
    if (!crosses_end(v)) option.bytes += graph_.values[v].bytes;
    if ((k + 1) % step != 0 && k + 1 < heavy.size()) continue;
    option.cost = cost_to_make(saved_alone, kept);
    option.peak = std::max(peak, replay_peak(crossing, saved_alone, kept));
    option.unaided_cost = cost_to_make(saved, kept);
    options.push_back(option);
  }
  return options;
}

std::vector<uint64_t> RecordRange::shape(const std::vector<uint32_t>& crossing) const {
  std::vector<uint64_t> shape;
  std::vector<uint32_t> outside;  // values of other records, by their first use here
  const auto is_made = [&](uint32_t v) { return v >= base_ && v - base_ < saved_.size(); };
  const auto add_number = [&](uint32_t v) {
    if (is_made(v)) return shape.push_back(v - base_);
    const auto at = std::ranges::find(outside, v) - outside.begin();
    shape.push_back(~static_cast<uint64_t>(at));
    if (at < std::ssize(outside)) return;
    outside.push_back(v);
    const int32_t maker = graph_.values[v].record;
    const bool wants_gradient = maker >= 0 && graph_.records[static_cast<size_t>(maker)].reached;
    shape.push_back(graph_.values[v].bytes);
    shape.push_back((maker >= static_cast<int32_t>(first_)) * 2 + wants_gradient);
  };
  const auto add_all = [&](const std::vector<uint32_t>& values) {
    shape.push_back(values.size());
    for (const uint32_t v : values) add_number(v);
  };
  for (uint32_t r = first_; r < last_; ++r) {
    const Graph::Record& record = graph_.records[r];
    add_all(record.outputs);
    for (const uint32_t v : record.outputs) {
      shape.push_back(graph_.values[v].bytes);
      shape.push_back(uses_[v].is_heavy * 2 + crosses_end(v));
    }
    add_all(record.inputs);
    add_all(record.saved);
    shape.insert(shape.end(), {std::bit_cast<uint64_t>(record.cost), record.workspace,
                               uint64_t{record.taken} * 2 + record.reached,
                               graph_.gradients_from(r) - graph_.gradients_from(last_)});
  }
  add_all(crossing);
  return shape;
}

std::vector<KeepOption> KnownOptions::of(const RecordRange& range,
                                         const std::vector<uint32_t>& crossing) {
  const auto [at, is_new] = known_.try_emplace(range.shape(crossing));
  Known& known = at->second;
  if (is_new) {
    known = {range.first_value(), range.leaf_gradients(), range.keep_options(crossing)};
    return known.options;
  }
  std::vector<KeepOption> options = known.options;
  for (KeepOption& option : options) {
    option.peak = option.peak - known.leaf_gradients + range.leaf_gradients();
    for (uint32_t& v : option.kept) v = v - known.first_value + range.first_value();
  }
  return options;
}

}  // namespace rw
