#include "planner/forecast/estimate.h"

#include <fmt/format.h>

#include <unordered_set>

namespace rw {

namespace {

uint64_t at(const MemoryReport& memory, Purpose purpose) {
  return memory.peak_by_purpose[static_cast<int>(purpose)];
}

uint64_t of_parameters(const MemoryReport& m) {
  return at(m, Purpose::parameter) + at(m, Purpose::gradient) + at(m, Purpose::optimizer);
}

}  // namespace

uint64_t Estimate::total() const {
  return static_cast<uint64_t>(states * static_cast<double>(parameters)) + 2 * outputs + input;
}

Estimate estimate(const Planner& planner) {
  StepSettings settings = planner.settings().plain();
  settings.dtype = DType::f32;
  settings.accumulate = 1;
  settings.rank = 0, settings.ranks = 1;
  Estimate e{.states = planner.program().estimator_states,
             .exact = planner.forecast(settings, {.memory = DryMemory::unlimited}).memory};
  e.parameters = at(e.exact, Purpose::parameter);
  e.input = at(e.exact, Purpose::data);
  const Graph recorded = planner.record(settings);
  std::unordered_set<uint32_t> saved;
  for (const Graph::Record& record : recorded.records)
    saved.insert(record.saved.begin(), record.saved.end());
  for (size_t i = 0; i < recorded.values.size(); ++i) {
    const Graph::Value& value = recorded.values[i];
    if (value.record < 0) continue;
    e.outputs += value.bytes;
    if (saved.count(static_cast<uint32_t>(i))) e.saved += value.bytes;
  }
  return e;
}

std::string estimate_text(const Estimate& e) {
  if (e.outputs == 0) return "";  // nothing was recorded here: micro-batches side by side
  const auto parameters = static_cast<double>(e.parameters);
  return fmt::format(
      "The usual estimate for this batch in f32, without recomputation:\n"
      "  parameters x {:.0f} + outputs x 2 + input = {}; exact: {} (the estimate is {:.2f} times "
      "that)\n"
      "  parameters x {:.0f}: {}; exact: {}, {:.1f} floats per parameter with gradients and "
      "moments\n"
      "  outputs x 2: {}; exact: {} of activations at the peak. Gradients read {} of the {} that "
      "ops\n"
      "  return, the rest is overwritten or freed; and gradients of activations are freed as "
      "backward proceeds,\n"
      "  so they never double them. Not estimated: {} of workspace, {} of padding.\n",
      e.states, format_bytes(e.total()), format_bytes(e.exact.peak),
      static_cast<double>(e.total()) / static_cast<double>(e.exact.peak), e.states,
      format_bytes(static_cast<uint64_t>(e.states * parameters)),
      format_bytes(of_parameters(e.exact)),
      static_cast<double>(of_parameters(e.exact)) / parameters, format_bytes(2 * e.outputs),
      format_bytes(at(e.exact, Purpose::activation)), format_bytes(e.saved),
      format_bytes(e.outputs), format_bytes(at(e.exact, Purpose::workspace)),
      format_bytes(e.exact.padding_at_peak));
}

}  // namespace rw
