#include "planner/graph/liveness.h"

namespace rw {

Liveness::Liveness(const Graph& graph, uint32_t first, uint32_t last)
    : graph_(graph), first_(first), last_(last) {
  uint32_t end = 0;
  for (uint32_t i = first; i < last; ++i)
    for (uint32_t v : graph.records[i].outputs) {
      base_ = std::min(base_, v);
      end = std::max(end, v + 1);
    }
  if (end > 0) states_.resize(end - base_);
}

bool Liveness::has_gradient(uint32_t v) const {
  return makes(v) ? states_[v - base_].has_gradient
                  : std::find(gradients_.begin(), gradients_.end(), v) != gradients_.end();
}

void Liveness::hold_gradient(uint32_t v) {
  if (has_gradient(v)) return;  // it is added to the one there is
  live_ += graph_.values[v].bytes;
  if (makes(v))
    states_[v - base_].has_gradient = true;
  else
    gradients_.push_back(v);
}

void Liveness::run(uint32_t record) {
  const Graph::Record& r = graph_.records[record];
  for (uint32_t v : r.inputs) swap_in(v);
  for (uint32_t v : r.outputs) hold(v);
  touch(r.workspace);
  for (uint32_t v : r.outputs)
    if (reader(v) < 0) release(v);
  for (uint32_t v : r.inputs) {
    if (!makes(v) || reader(v) != static_cast<int32_t>(record)) continue;
    reader(v) = -1;  // an input may be listed twice
    release(v);
  }
}

void Liveness::vjp(uint32_t record) {
  const Graph::Record& r = graph_.records[record];
  arrive(record + 1);
  const auto& outputs = r.outputs;
  const auto has = [&](uint32_t v) { return has_gradient(v); };
  if (std::none_of(outputs.begin(), outputs.end(), has))  // the loss
    for (uint32_t v : outputs) hold_gradient(v);
  for (uint32_t v : r.saved) swap_in(v);
  touch(r.workspace);
  for (uint32_t v : r.saved_taken()) release(v);
  arrive(record);
  uint64_t made = r.workspace;
  for (size_t k = 0; k < r.inputs.size(); ++k) {
    const uint32_t v = r.inputs[k];
    const bool is_first =
        std::find(r.inputs.begin(), r.inputs.begin() + k, v) == r.inputs.begin() + k;
    // A view's gradient is a view.
    if (is_first && wants_gradient(v) && !outputs.empty()) made += graph_.values[v].bytes;
  }
  touch(made);
  for (uint32_t v : outputs)
    if (has_gradient(v)) live_ -= graph_.values[v].bytes;
  for (uint32_t v : r.inputs)
    if (wants_gradient(v)) hold_gradient(v);
  for (uint32_t v : r.saved_read()) release(v);
}

}  // namespace rw
