#include "planner/graph/uses.h"

#include <algorithm>
#include <tuple>

#include "planner/graph/tuning.h"

namespace rw {

namespace {

double output_bytes(const Graph& graph, const Graph::Record& record) {
  double sum = 0;
  for (uint32_t v : record.outputs) sum += static_cast<double>(graph.values[v].bytes);
  return sum;
}

void mark_heavy(const Graph& graph, std::vector<ValueUse>& uses) {
  std::vector<std::pair<double, uint32_t>> dearest;  // -cost per byte, record
  double total = 0;
  for (uint32_t i = 0; i < graph.records.size(); ++i) {
    const Graph::Record& record = graph.records[i];
    total += record.cost;
    const double bytes = std::max(output_bytes(graph, record), 1.0);
    if (record.cost > 0) dearest.emplace_back(-record.cost / bytes, i);
  }
  std::sort(dearest.begin(), dearest.end());
  double share = 0, threshold = 0;
  for (const auto& [density, i] : dearest) {
    if (share >= tuning::heavy_share * total && density > threshold) break;
    share += graph.records[i].cost;
    threshold = density;
    for (uint32_t v : graph.records[i].outputs) uses[v].is_heavy = true;
  }
}

}  // namespace

std::vector<ValueUse> value_uses(const Graph& graph) {
  std::vector<ValueUse> uses(graph.values.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < graph.records.size(); ++i) {
    const Graph::Record& record = graph.records[i];
    for (uint32_t v : record.inputs) uses[v].last_reader = static_cast<int32_t>(i);
    for (uint32_t v : record.outputs) {
      uses[v].rank = rank++;
      uses[v].has_gradient = record.reached;
    }
    if (record.reached)
      for (uint32_t v : record.saved) uses[v].saved = true;
  }
  mark_heavy(graph, uses);
  return uses;
}

Plan::Offload offload_of(const Graph& graph, const std::vector<ValueUse>& uses, uint32_t value,
                         bool in_8_bits) {
  const auto [record, slot, replay] = graph.output(value);
  const int32_t last = std::max(uses[value].last_reader, static_cast<int32_t>(record));
  return {record, slot, static_cast<uint32_t>(last), in_8_bits};
}

void put_in_order(std::vector<Plan::Offload>& offloads) {
  const auto key = [](const Plan::Offload& m) { return std::tuple(m.after, m.record, m.slot); };
  std::ranges::sort(offloads, {}, key);
  const auto repeated = std::ranges::unique(offloads, {}, key);
  offloads.erase(repeated.begin(), repeated.end());
}

}  // namespace rw
