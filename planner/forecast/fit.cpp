#include "planner/forecast/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "core/base/parallel.h"
#include "planner/forecast/rank_memory.h"
#include "planner/forecast/step_time.h"

namespace rw {

namespace {

// Extra FLOPs that most people consider cheap: one more forward pass in a step of three.
constexpr double cheap = 1.0 / 3;

struct Way {
  std::string name;
  StepSettings settings;
};

// Plans are made for at least so many samples: with fewer, the peak may be that of the optimizer,
// and no plan would look at activations.
constexpr int64_t least_planned_batch = 8;

// The places of states and parameters and the kinds of updates, from the quickest to the leanest.
std::vector<Way> places(const Planner& planner, const StepSettings& settings) {
  std::vector<std::string> offloads = {settings.offload};
  if (settings.offload == "none" && planner.can_offload(settings))
    offloads = {"none", "states", "parameters"};
  std::vector<int> fused = {settings.fused_update};
  if (settings.fused_update == 0 && planner.can_fuse(settings)) fused.push_back(2);
  std::vector<Way> all;
  for (const std::string& offload : offloads)
    for (const int passes : fused) {
      Way& way = all.emplace_back("", settings);
      way.settings.offload = offload;
      way.settings.fused_update = passes;
      if (offload != settings.offload) way.name += ", " + offload + " offloaded";
      if (passes != settings.fused_update) way.name += ", fused";
    }
  return all;
}

// The ways to recompute in one dtype. `batch` is the largest that fits with everything kept.
std::vector<Way> ways(const Planner& planner, StepSettings settings, int64_t batch,
                      int candidates) {
  const int every = settings.checkpoint == "block" ? settings.checkpoint_every : 1;
  settings = settings.plain();
  std::vector<Way> all = {{"plain", settings}, {"block checkpoint", settings}};
  all[1].settings.checkpoint = "block";
  all[1].settings.checkpoint_every = every;
  if (batch == 0) return all;

  StepSettings planned = settings;
  planned.batch = std::max(batch, least_planned_batch);
  planned.accumulate = 1;
  // The cost of a row is in FLOPs, which do not tell the time of copies to the host.
  Search search = planner.search(planned, {.candidates = candidates, .host_bytes = 0});
  const std::vector<Candidate>& choices = search.candidates();
  const auto budget = [&](const char* name, const Candidate& choice) {
    all.push_back({name, settings});
    all.back().settings.recompute = std::make_shared<const Plan>(choice.plan);
  };
  const auto last_cheap = std::find_if(choices.rbegin(), choices.rend(), [](const auto& choice) {
    return choice.forecast.recompute_share() <= cheap;
  });
  if (last_cheap != choices.rend()) budget("budget, up to 1.33x", *last_cheap);
  if (last_cheap != choices.rbegin()) budget("budget, smallest", choices.back());
  return all;
}

// Why one more sample does not fit although the memory would be enough.
std::string other_limit(const Planner& planner, StepSettings settings, uint64_t bytes) {
  settings = settings.shortened();
  ++settings.batch;
  if (planner.peak(settings) > bytes) return "";
  try {
    planner.forecast(settings, {.memory = DryMemory::unlimited, .memory_limit = bytes});
  } catch (const OutOfMemory&) {
    return "";
  }
  return fmt::format("the driver's largest block, {}",
                     format_bytes(planner.info().max_block_bytes));
}

// Kernels of larger blocks may take more scratch memory, and work otherwise.
double seconds_of(const Planner& planner, const StepSettings& settings) {
  const DeviceSpeed speed = assumed_speed(planner.info());
  try {
    return speed.seconds(planner.measure(settings, DryMemory::blocks_of_device).work);
  } catch (const OutOfMemory&) {  // a tensor is larger than blocks
    return speed.seconds(planner.measure(settings).work);
  }
}

FitRow find_row(const Planner& planner, const Way& mode, uint64_t bytes, int64_t guess) {
  FitRow row{.mode = mode.name, .settings = mode.settings};
  row.settings.batch = largest_batch_of_ranks(planner, row.settings, bytes,
                                              std::max<int64_t>(1, guess), &row.forecast);
  row.limit = other_limit(planner, row.settings, bytes);
  if (row.settings.batch == 0) return row;
  StepSettings kept = row.settings.plain();
  kept.offload = planner.settings().offload;
  kept.fused_update = planner.settings().fused_update;
  row.cost = seconds_of(planner, row.settings) / seconds_of(planner, kept);
  return row;
}

// Whether another row of the kind is at least as good in every respect, and better in one or before
// it.
bool is_dominated(const FitRow& row, const std::vector<FitRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [&](const FitRow& other) {
    const auto &a = other.settings, &b = row.settings;
    return a.dtype == b.dtype && a.shard == b.shard && a.accumulate == b.accumulate &&
           b.batch > 0 && a.batch >= b.batch && other.cost <= row.cost &&
           (a.batch > b.batch || other.cost < row.cost || &other < &row);
  });
}

}  // namespace

std::vector<FitRow> fit(const Planner& planner, uint64_t bytes, const FitOptions& options) {
  const StepSettings& wanted = planner.settings();
  std::vector<uint32_t> accumulations = {1};
  if (wanted.accumulate > 1) accumulations.push_back(wanted.accumulate);
  std::mutex telling;
  const auto find = [&](Way mode, uint32_t accumulate, int64_t guess) {
    mode.settings.accumulate = accumulate;
    FitRow row = find_row(planner, mode, bytes, guess);
    const std::lock_guard lock(telling);
    if (options.on_row) options.on_row(row);
    return row;
  };

  // The leanest plain row tells the batch that plans are made for, and they hold for all rows.
  struct Row {
    Way way;
    uint32_t accumulate;
    int64_t guess;
  };
  std::vector<StepSettings> bases;
  for (const DType dtype : options.dtypes)
    for (const std::string& shard :
         options.shards.empty() ? std::vector{wanted.shard} : options.shards) {
      StepSettings& base = bases.emplace_back(wanted);
      base.dtype = dtype;
      base.shard = shard;
    }
  std::vector<std::vector<Row>> by_base(bases.size());
  parallel_for(bases.size(), options.threads, [&](size_t i) {
    const std::vector<Way> all = places(planner, bases[i]);
    StepSettings lean = all.back().settings.plain();
    lean.accumulate = 1;
    const int64_t batch = largest_batch_of_ranks(planner, lean, bytes, wanted.batch);
    const std::vector<Way> modes = ways(planner, lean, batch, options.candidates);
    for (const Way& place : all)
      for (Way way : modes) {
        way.name += place.name;
        way.settings.offload = place.settings.offload;
        way.settings.fused_update = place.settings.fused_update;
        for (const uint32_t accumulate : accumulations)
          if (accumulate == 1 || way.settings.fused_update == 0)
            by_base[i].push_back({way, accumulate, batch});
      }
  });
  std::vector<Row> searches;
  for (std::vector<Row>& some : by_base) std::ranges::move(some, std::back_inserter(searches));
  std::vector<FitRow> rows(searches.size());
  parallel_for(searches.size(), options.threads, [&](size_t i) {
    const Row& s = searches[i];
    rows[i] = find(s.way, s.accumulate, s.guess);
  });
  std::vector<FitRow> best;
  std::ranges::copy_if(rows, std::back_inserter(best), [&](const FitRow& row) {
    return !is_dominated(row, rows) && (row.settings.batch > 0 || row.mode == "plain");
  });
  return best;
}

std::string fit_table(const std::vector<FitRow>& rows, uint64_t bytes, const std::string& samples) {
  std::string limit;
  size_t width = 20;
  for (const FitRow& row : rows) width = std::max(width, row.mode.size() + 1);
  const int ranks = rows.empty() ? 1 : rows[0].settings.ranks;
  const auto in_parts = [&](const std::string& text) {
    return ranks > 1 ? fmt::format("{:<12}", text) : "";
  };
  std::string out = fmt::format(
      "Largest batches of {} in {}{}; cost: modelled time against all kept on the device\n"
      "  {:<6}{}{:<{}}{:>10}{:>8}{:>9}{:>8}{:>13}{:>13}\n",
      samples, format_bytes(bytes), ranks > 1 ? fmt::format(" on each of {} ranks", ranks) : "",
      "dtype", in_parts("in parts"), "", width, "accumulate", "batch", "per step", "cost", "peak",
      "reserved");
  for (const FitRow& row : rows) {
    const int64_t steps = int64_t{row.settings.accumulate} * ranks;
    out += fmt::format("  {:<6}{}{:<{}}{:>10}{:>8}", name(row.settings.dtype),
                       in_parts(row.settings.shard), row.mode, width, steps,
                       row.settings.batch * steps);
    if (row.settings.batch == 0) {
      out += "   does not fit\n";
      continue;
    }
    out += fmt::format("{:>9}{:>7.2f}x{:>13}{:>13}{}\n", row.settings.batch, row.cost,
                       format_bytes(row.forecast.memory.peak),
                       format_bytes(row.forecast.memory.peak_reserved),
                       row.limit.empty() ? "" : "  *");
    if (!row.limit.empty()) limit = row.limit;
  }
  if (!limit.empty()) out += fmt::format("  * limited by {}\n", limit);
  return out;
}

}  // namespace rw
