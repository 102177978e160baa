#include "planner/graph/evaluate.h"

#include <algorithm>

#include "core/base/error.h"
#include "planner/graph/liveness.h"

namespace rw {

namespace {

class Simulation {
 public:
  Simulation(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), live_(graph, 0, static_cast<uint32_t>(graph.records.size())) {
    index_segments();
    index_values();
    index_externals();
  }

  PlanCost run(uint64_t most) {
    const auto n = static_cast<uint32_t>(graph_.records.size());
    for (uint32_t i = 0; i < n && live_.peak() <= most; ++i) forward(i);
    send_due(UINT32_MAX);
    result_.held = live_.live();
    auto segment = static_cast<int32_t>(plan_.segments.size()) - 1;
    for (uint32_t i = n; i-- > 0 && live_.peak() <= most;) {
      if (graph_.records[i].reached) visit(i);
      for (; segment >= 0 && plan_.segments[segment].first == i; --segment) drop_held(segment);
    }
    result_.peak = live_.peak();
    return result_;
  }

 private:
  struct External {
    uint32_t value;
    bool held;   // now
    bool inner;  // made inside an enclosing segment: there only after that one's replay
  };
  struct SegmentState {
    std::vector<External> externals;
    std::vector<int32_t> children;
    std::vector<uint32_t> kept;   // by the plan, or left behind by a later segment
    std::vector<uint32_t> keeps;  // values that its replay keeps for segments inside it
    bool replayed = false;
  };

  bool inside(int32_t segment, int32_t record) const {
    const auto& s = plan_.segments[segment];
    return record >= 0 && static_cast<uint32_t>(record) >= s.first &&
           static_cast<uint32_t>(record) < s.last;
  }

  void index_segments() {
    segment_of_.assign(graph_.records.size(), -1);
    state_.resize(plan_.segments.size());
    uint32_t previous = 0;
    for (int32_t s = 0; s < static_cast<int32_t>(plan_.segments.size()); ++s) {
      const auto [first, last, parent] = plan_.segments[s];
      check(first < last && last <= graph_.records.size() && first >= previous && parent < s,
            "recompute", "segments must be ranges of records in forward order, got [{}, {})", first,
            last);
      check(segment_of_[first] == parent && segment_of_[last - 1] == parent, "recompute",
            "segments must nest, got [{}, {}) with parent {}", first, last, parent);
      previous = first;
      std::fill(segment_of_.begin() + first, segment_of_.begin() + last, s);
      if (parent >= 0) state_[parent].children.push_back(s);
    }
  }

  void index_values() {
    const size_t n = graph_.values.size();
    wanted_.assign(n, -1);
    at_hand_.assign(n, -1);
    saved_at_home_.assign(n, false);
    read_in_segment_.assign(n, false);
    kept_.assign(n, false);
    for (size_t i = 0; i < graph_.records.size(); ++i) {
      const Graph::Record& record = graph_.records[i];
      for (uint32_t v : record.inputs) {
        if (live_.makes(v)) live_.reader(v) = static_cast<int32_t>(i);
        if (segment_of_[i] >= 0) read_in_segment_[v] = true;
      }
      if (!record.reached) continue;
      for (uint32_t v : record.saved) {
        const int32_t maker = graph_.values[v].record;
        if (maker >= 0 && segment_of_[maker] == segment_of_[i]) saved_at_home_[v] = true;
      }
    }
    for (const Plan::Output& output : plan_.keep) {
      const uint32_t v = graph_.value(output);
      const int32_t replay = output.replay;
      const int32_t maker = graph_.values[v].record;
      check(maker >= 0 && segment_of_[maker] >= 0, "recompute",
            "kept values must be made inside a segment, got value {}", v);
      if (replay >= 0) {
        check(inside(replay, maker) && segment_of_[maker] != replay, "recompute",
              "what a replay keeps must be made in a segment inside it, got value {}", v);
        state_[replay].keeps.push_back(v);
        continue;
      }
      if (kept_[v]) continue;
      kept_[v] = true;
      state_[segment_of_[maker]].kept.push_back(v);
    }
  }

  // A value is external to all segments around its reader, up to the innermost segment that made
  // it.
  void index_externals() {
    std::vector<std::pair<int32_t, uint32_t>> pairs;
    for (size_t i = 0; i < graph_.records.size(); ++i)
      for (uint32_t v : graph_.records[i].inputs) {
        const int32_t maker = graph_.values[v].record;
        if (maker < 0) continue;
        for (int32_t s = segment_of_[i]; s >= 0 && !inside(s, maker); s = plan_.segments[s].parent)
          pairs.emplace_back(s, v);
      }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    for (const auto& [s, v] : pairs) {
      int32_t outer = plan_.segments[s].parent;
      while (outer >= 0 && !inside(outer, graph_.values[v].record))
        outer = plan_.segments[outer].parent;
      state_[s].externals.push_back({v, false, outer >= 0});
    }
  }

  void forward(uint32_t i) {
    send_due(i);
    for (; opened_ < state_.size() && plan_.segments[opened_].first == i; ++opened_)
      for (External& e : state_[opened_].externals)
        if (!e.inner) hold_external(e);
    const Graph::Record& record = graph_.records[i];
    if (segment_of_[i] < 0) hold_saved(record);
    for (uint32_t v : record.outputs)
      if (kept_[v]) live_.hold(v);
    live_.run(i);
  }

  // Sends the values that records before `end` have read for the last time.
  void send_due(uint32_t end) {
    for (; next_offload_ < plan_.offloads.size() && plan_.offloads[next_offload_].after < end;
         ++next_offload_) {
      const Plan::Offload& next = plan_.offloads[next_offload_];
      const uint32_t v = graph_.value({next.record, next.slot});
      check(next.after >= next.record &&
                (next_offload_ == 0 || plan_.offloads[next_offload_ - 1].after <= next.after),
            "recompute",
            "offloads must be in the order in which they happen, got one after record {}",
            next.after);
      const Graph::Value& value = graph_.values[v];
      if (next.in_8_bits && !(graph_.can_quantize(v) && only_vjps_read(v))) continue;
      if (!live_.swap_out(v, next.in_8_bits ? value.quantized : 0)) continue;
      result_.offloads.push_back(next);
      (next.in_8_bits ? result_.in_8_bits : result_.offloaded) += value.bytes;
      result_.cost += next.in_8_bits ? graph_.quantize_cost(v)
                                     : graph_.offload_cost * static_cast<double>(value.bytes);
    }
  }

  // Tells whether no replay makes the value or reads it.
  bool only_vjps_read(uint32_t v) const {
    return !read_in_segment_[v] && segment_of_[graph_.values[v].record] < 0;
  }

  void hold_saved(const Graph::Record& record) {
    if (!record.reached) return;
    for (uint32_t v : record.saved) live_.hold(v);
  }

  void hold_external(External& e) {
    e.held = true;
    live_.hold(e.value);
  }

  void visit(uint32_t i) {
    live_.arrive(i + 1);
    if (segment_of_[i] >= 0 && !graph_.records[i].saved.empty()) open(segment_of_[i]);
    live_.vjp(i);
  }

  void open(int32_t s) {
    if (state_[s].replayed) return;
    if (plan_.segments[s].parent >= 0) open(plan_.segments[s].parent);
    replay(s);
    state_[s].replayed = true;
    drop_held(s);
  }

  bool is_own(int32_t s, uint32_t i) const {
    return segment_of_[i] == s && graph_.records[i].reached;
  }

  void replay(int32_t s) {
    const auto [first, last, parent] = plan_.segments[s];
    for (const External& e : state_[s].externals) at_hand_[e.value] = s;
    for (uint32_t v : state_[s].kept) at_hand_[v] = s;
    for (uint32_t i = first; i < last; ++i)
      if (is_own(s, i))
        for (uint32_t v : graph_.records[i].saved) wanted_[v] = s;
    for (int32_t child : state_[s].children)
      for (const External& e : state_[child].externals)
        if (e.inner) wanted_[e.value] = s;
    for (uint32_t v : state_[s].keeps) wanted_[v] = s;
    const std::vector<uint32_t> brought_back = execute(s);
    for (uint32_t i = first; i < last; ++i)
      if (is_own(s, i)) hold_saved(graph_.records[i]);
    for (int32_t child : state_[s].children)
      for (External& e : state_[child].externals)
        if (e.inner) hold_external(e);
    for (uint32_t v : state_[s].keeps) {
      if (kept_[v]) continue;
      kept_[v] = true;
      state_[segment_of_[graph_.values[v].record]].kept.push_back(v);
      live_.hold(v);
    }
    for (uint32_t v : brought_back) live_.release(v);
  }

  bool is_at_hand(int32_t s, uint32_t v) const {
    return at_hand_[v] == s || (kept_[v] && inside(s, graph_.values[v].record));
  }

  // Runs a replay. Returns the wanted values that it made, each held once.
  std::vector<uint32_t> execute(int32_t s) {
    const auto& [first, last, parent] = plan_.segments[s];
    const auto wanted = [&](uint32_t v) { return wanted_[v] == s; };
    const auto at_hand = [&](uint32_t v) { return is_at_hand(s, v); };
    const std::vector<uint32_t> order = live_.records_to_run(first, last, wanted, at_hand);
    std::vector<uint32_t> brought_back;
    for (auto i = order.rbegin(); i != order.rend(); ++i) {
      for (uint32_t v : graph_.records[*i].outputs) {
        if (!wanted(v) || at_hand(v)) continue;
        brought_back.push_back(v);
        live_.hold(v);
      }
      live_.run(*i);
      result_.cost += graph_.records[*i].cost;
    }
    result_.replayed += order.size();
    return brought_back;
  }

  // Releases what the segment holds for its replay.
  void drop_held(int32_t s) {
    for (External& e : state_[s].externals) {
      if (!e.held) continue;
      hand_over(e.value);
      live_.release(e.value);
      e.held = false;
    }
    for (uint32_t v : state_[s].kept) {
      kept_[v] = false;
      live_.release(v);
    }
    state_[s].kept.clear();
  }

  // The segment that saves a value need not replay it if this segment held it.
  void hand_over(uint32_t v) {
    const int32_t home = segment_of_[graph_.values[v].record];
    if (home < 0 || state_[home].replayed || !saved_at_home_[v]) return;
    auto& kept = state_[home].kept;
    if (std::find(kept.begin(), kept.end(), v) != kept.end()) return;
    kept.push_back(v);
    live_.hold(v);
  }

  const Graph& graph_;
  const Plan& plan_;
  PlanCost result_;
  Liveness live_;
  size_t opened_ = 0;        // segments that forward has entered
  size_t next_offload_ = 0;  // the first that has not happened
  std::vector<SegmentState> state_;
  std::vector<int32_t> segment_of_;  // innermost, by record
  // These have an entry for each value.
  std::vector<int32_t> wanted_, at_hand_;  // segment whose replay wants or has it
  std::vector<bool> kept_;
  std::vector<bool> saved_at_home_;  // by a record of the innermost segment that makes it
  std::vector<bool> read_in_segment_;
};

}  // namespace

PlanCost evaluate(const Graph& graph, const Plan& plan, uint64_t most) {
  return Simulation(graph, plan).run(most);
}

void fill_in(const Graph& graph, Plan& plan, uint64_t most) {
  PlanCost cost = evaluate(graph, plan, most);
  plan.cost = cost.cost;
  plan.peak = cost.peak;
  plan.offloaded = cost.offloaded;
  plan.in_8_bits = cost.in_8_bits;
  plan.offloads = std::move(cost.offloads);
}

}  // namespace rw
