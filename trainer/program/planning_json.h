// The results of planning as JSON, for reports.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <vector>

#include "../../planner/forecast/estimate.h"
#include "../../planner/forecast/fit.h"
#include "../../planner/forecast/savings.h"

namespace rw {

nlohmann::json work_json(const Forecast& forecast);
nlohmann::json settings_json(const StepSettings& settings);
nlohmann::json fit_json(const std::vector<FitRow>& rows);
nlohmann::json savings_json(const std::vector<Saving>& savings);
nlohmann::json estimate_json(const Estimate& estimate);

}  // namespace rw
