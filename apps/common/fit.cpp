#include "apps/common/fit.h"

#include <fmt/format.h>

#include <algorithm>

namespace rw {

namespace {

// Extra FLOPs that most people call cheap: one more forward pass in a step of three.
constexpr double cheap = 1.0 / 3;

struct Mode {
  std::string name;
  StepSettings settings;
};

// The ways to recompute in one dtype. `batch`: as large as plans are made for.
std::vector<Mode> modes(const Planner& planner, StepSettings settings, int64_t batch) {
  const int every = settings.checkpoint == "block" ? settings.checkpoint_every : 1;
  settings.checkpoint = "none";
  settings.recompute = nullptr;
  settings.budget = 0;
  std::vector<Mode> all = {{"plain", settings}, {"block checkpoint", settings}};
  all[1].settings.checkpoint = "block";
  all[1].settings.checkpoint_every = every;
  if (batch == 0) return all;

  StepSettings planned = settings;
  planned.batch = batch;
  planned.accumulate = 1;
  RecomputeSearch search = planner.search(planned);
  const std::vector<RecomputeChoice>& choices = search.choices();
  const auto budget = [&](const char* name, const RecomputeChoice& choice) {
    all.push_back({name, settings});
    all.back().settings.recompute = std::make_shared<const Recompute>(choice.recompute);
  };
  const auto last_cheap = std::find_if(choices.rbegin(), choices.rend(), [](const auto& choice) {
    return choice.forecast.recompute_share() <= cheap;
  });
  if (last_cheap != choices.rend()) budget("budget, up to 1.33x", *last_cheap);
  if (last_cheap != choices.rbegin()) budget("budget, smallest", choices.back());
  return all;
}

}  // namespace

std::vector<FitRow> largest_batches(const Planner& planner, const StepSettings& settings,
                                    uint64_t bytes) {
  std::vector<uint32_t> accumulations = {1};
  if (settings.accumulate > 1) accumulations.push_back(settings.accumulate);
  std::vector<FitRow> rows;
  for (const DType dtype : {DType::f32, DType::f16}) {
    const StepSettings plain{.dtype = dtype};
    int64_t guess = planner.largest_batch(plain, bytes, settings.batch);
    StepSettings wanted = settings;
    wanted.dtype = dtype;
    for (const Mode& mode : modes(planner, wanted, guess)) {
      for (const uint32_t accumulate : accumulations) {
        FitRow row{mode.name, mode.settings, {}};
        row.settings.accumulate = accumulate;
        row.settings.batch =
            planner.largest_batch(row.settings, bytes, std::max<int64_t>(1, guess));
        if (row.settings.batch > 0)
          row.forecast =
              planner.forecast(row.settings, {.room = Room::blocks, .memory_limit = bytes});
        guess = row.settings.batch;
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

std::string fit_table(const std::vector<FitRow>& rows, uint64_t bytes, const std::string& samples) {
  std::string out = fmt::format(
      "Largest batches of {} in {}; cost: FLOPs per sample against plain\n"
      "  {:<6}{:<20}{:>10}{:>8}{:>9}{:>8}{:>13}{:>13}\n",
      samples, format_bytes(bytes), "dtype", "", "accumulate", "batch", "per step", "cost", "peak",
      "reserved");
  for (const FitRow& row : rows) {
    out += fmt::format("  {:<6}{:<20}{:>10}{:>8}", name(row.settings.dtype), row.mode,
                       row.settings.accumulate, row.settings.batch * row.settings.accumulate);
    if (row.settings.batch == 0) {
      out += "   does not fit\n";
      continue;
    }
    out += fmt::format("{:>9}{:>7.2f}x{:>13}{:>13}\n", row.settings.batch,
                       1 + row.forecast.recompute_share(), format_bytes(row.forecast.memory.peak),
                       format_bytes(row.forecast.memory.peak_reserved));
  }
  return out;
}

nlohmann::json fit_json(const std::vector<FitRow>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const FitRow& row : rows)
    out.push_back({{"dtype", name(row.settings.dtype)},
                   {"mode", row.mode},
                   {"accumulate", row.settings.accumulate},
                   {"batch_per_step", row.settings.batch},
                   {"batch", row.settings.batch * row.settings.accumulate},
                   {"recompute_share", row.forecast.recompute_share()},
                   {"peak", row.forecast.memory.peak},
                   {"reserved", row.forecast.memory.peak_reserved}});
  return out;
}

}  // namespace rw
