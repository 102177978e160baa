#include "trainer/program/planning_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/program/program.h"

namespace rw {

nlohmann::json work_json(const Forecast& forecast) {
  nlohmann::json json = {{"flops", forecast.flops()},
                         {"recompute_share", forecast.recompute_share()},
                         {"samples", forecast.samples},
                         {"allocations", forecast.allocations}};
  for (int i = 0; i < phase_count; ++i)
    json[name(static_cast<Phase>(i))] = {{"flops", forecast.work[i].flops},
                                         {"bytes", forecast.work[i].bytes},
                                         {"kernels", forecast.work[i].calls}};
  return json;
}

nlohmann::json settings_json(const StepSettings& s) {
  return {{"dtype", name(s.dtype)},
          {"batch", s.batch},
          {"accumulate", s.accumulate},
          {"checkpoint", s.checkpoint},
          {"checkpoint_every", s.checkpoint_every},
          {"mlp_rows", s.mlp_rows},
          {"rank", s.rank},
          {"ranks", s.ranks},
          {"shard", s.shard},
          {"offload", s.offload},
          {"fused_update", s.fused_update},
          {"states_in_8_bits", s.states_in_8_bits},
          {"memory_budget", s.budget},
          {"evicts", s.recompute && s.recompute->evicts},
          {"in_8_bits", s.recompute ? s.recompute->in_8_bits : 0}};
}

nlohmann::json fit_json(const std::vector<FitRow>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const FitRow& row : rows) {
    const int64_t steps = int64_t{row.settings.accumulate} * row.settings.ranks;
    out.push_back({{"dtype", name(row.settings.dtype)},
                   {"mode", row.mode},
                   {"shard", row.settings.shard},
                   {"ranks", row.settings.ranks},
                   {"rank", row.settings.rank},
                   {"accumulate", steps},
                   {"batch_per_step", row.settings.batch},
                   {"batch", row.settings.batch * steps},
                   {"recompute_share", row.forecast.recompute_share()},
                   {"offload", row.settings.offload},
                   {"fused_update", row.settings.fused_update},
                   {"cost", row.cost},
                   {"peak", row.forecast.memory.peak},
                   {"reserved", row.forecast.memory.peak_reserved},
                   {"limit", row.limit}});
  }
  return out;
}

nlohmann::json savings_json(const std::vector<Saving>& savings) {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < savings.size(); ++i) {
    const auto before = static_cast<int64_t>(savings[i > 0 ? i - 1 : 0].peak);
    rows.push_back({{"technique", savings[i].technique},
                    {"peak", savings[i].peak},
                    {"saved", before - static_cast<int64_t>(savings[i].peak)}});
  }
  return rows;
}

nlohmann::json estimate_json(const Estimate& e) {
  return {{"formula", fmt::format("parameters x {:.0f} + outputs x 2 + input", e.states)},
          {"parameters", e.parameters},
          {"outputs", e.outputs},
          {"outputs_saved", e.saved},
          {"input", e.input},
          {"estimate", e.total()},
          {"exact", memory_json(e.exact)}};
}

}  // namespace rw
