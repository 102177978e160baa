// The largest batches that fit in some memory, by dry runs.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "apps/common/planner.h"

namespace rw {

struct FitRow {
  std::string mode;       // plain, block checkpoint, or a kind of budget
  StepSettings settings;  // batch: the largest that fits; 0: not even one sample
  StepForecast forecast;
};
// For f32 and f16, without and with recomputation, without and with the settings' accumulation.
std::vector<FitRow> largest_batches(const Planner& planner, const StepSettings& settings,
                                    uint64_t bytes);

std::string fit_table(const std::vector<FitRow>& rows, uint64_t bytes, const std::string& samples);
nlohmann::json fit_json(const std::vector<FitRow>& rows);

}  // namespace rw
