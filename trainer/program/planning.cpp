#include "trainer/program/planning.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <unistd.h>

#include "backends/launches.h"
#include "backends/open.h"
#include "core/base/environment.h"
#include "core/memory/process_memory.h"
#include "data/base/files.h"
#include "planner/choices/choice_text.h"
#include "planner/choices/remedies.h"
#include "planner/environment.h"
#include "planner/forecast/rank_memory.h"
#include "planner/timeline/timeline.h"
#include "trainer/program/planning_json.h"
#include "trainer/program/ranks.h"
#include "trainer/program/shared_options.h"
#include "trainer/program/waiting.h"
#include "trainer/report/run_page.h"

namespace rw {

void PlanningOptions::add_to(CLI::App& app) {
  set_reads_environment(false);  // these options take the place of the environment
  budget = env_text("REWIND_MEMORY_BUDGET");
  memory = env_text("REWIND_MEMORY");
  timeline = env_text("REWIND_TIMELINE");
  recompute = env_text("REWIND_RECOMPUTE");
  keep_8_bits = env_flag("REWIND_KEEP_8_BITS");
  app.add_flag("--plan", plan, "do not train: predict memory and work of a step, and stop");
  app.add_option("--fit", fit, "with --plan: the largest batches that fit in this memory, as 8GiB")
      ->needs("--plan");
  app.add_flag("--launches", launches,
               "with --plan: list the kernels of two updates, with their workgroups and bytes")
      ->needs("--plan");
  app.add_option("--save-profile", profile,
                 "write the device's limits, for --device dry:FILE.json");
  CLI::Option* const number = shared_option(
      app, "--memory", memory, "chooses the quickest way to take the same updates in it");
  shared_option(app, "--host-memory", host_memory,
                "with --memory; without it what the machine has free");
  app.add_option("--allow", allowed,
                 fmt::format("with --memory: ways that change the updates and may be chosen: {}",
                             fmt::join(approximate_ways(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(approximate_ways()));
  shared_flag(app, "--front", front, "with --plan and --memory")->needs("--plan");
  app.add_option("--memory-budget", budget,
                 "recompute just enough to stay below this, as 2GiB, instead of --checkpoint")
      ->excludes(number);
  app.add_option(
         "--recompute", recompute,
         "instead of --checkpoint: memory (the least, with every op at most twice), speed (keeps "
         "matrix products), collection:NAME,... (keeps the results of ops of these names, and "
         "values with these names), or evict (drops and recomputes values while it runs, to stay "
         "below "
         "--memory-budget)")
      ->excludes(number);
  shared_flag(app, "--keep-8-bits", keep_8_bits, "needs --memory-budget");
  app.add_option(
         "--plan-effort", effort,
         "a factor on the work that planning may take: with more than 1 (at most 2 s, 20 s for "
         "very large models) it finds better plans")
      ->check(CLI::Range(0.01, 1000.0));
  must_be_writable(app.add_option(
      "--report", report,
      "write a page of the run and all of its figures to this folder, or only the figures "
      "to FILE.json"));
  must_be_writable(app.add_option("--timeline", timeline,
                                  "write what is in memory during an update to this page"));
  must_be_writable(app.add_option(
      "--trace", trace, "write the same for Perfetto or chrome://tracing, with kernel times"));
}

namespace {

// Shows how far planning is, by a line that changes on a terminal, and elsewhere by a line for each
// quarter.
std::function<void(double)> progress_of_planning() {
  const bool changes = isatty(STDERR_FILENO);
  return [changes, shown = 0](double share) mutable {
    const int percent = changes ? static_cast<int>(100 * share) : static_cast<int>(4 * share) * 25;
    if (percent == shown || !is_first_rank()) return;
    shown = percent == 100 ? 0 : percent;
    if (changes)
      fmt::print(stderr, "\rplanning recomputation: {:3} %{}", percent, shown ? "" : "\n");
    else if (shown)
      fmt::print(stderr, "planning recomputation: {} %\n", percent);
  };
}

}  // namespace

bool PlanningOptions::decides_all() const {
  return !memory.empty() && (budget.empty() || is_given("--memory"));
}

std::optional<AutoRecomputeOptions> PlanningOptions::recomputation() const {
  if (decides_all()) return {};
  std::optional<AutoRecomputeOptions> options = parse_recompute(recompute, budget);
  check<ValueError>(options || !keep_8_bits, "options",
                    "--keep-8-bits is for plans, got no --memory-budget");
  if (!options) return options;
  options->keep_8_bits = keep_8_bits;
  options->effort = effort;
  options->on_progress = progress_of_planning();
  return options;
}

std::map<std::string, std::string> command_line_words() {
  std::map<std::string, std::string> words;
  const auto add = [&](const char* change, const char* option, const char* value) {
    if (has_option(option)) words[change] = *value ? fmt::format("{} {}", option, value) : option;
  };
  add("block", "--checkpoint", "block");
  add("boundaries", "--host-boundaries", "");
  add("mlp-rows", "--mlp-rows", "{}");
  add("f16", "--dtype", "f16");
  add("shard", "--shard", "states");
  add("offload", "--offload", "{}");
  add("fused", "--fused-update", "{}");
  add("8-bit-states", "--optimizer", "adamw-8bit");
  add("budget", "--memory-budget", "{}");
  add("length", "--seq", "{}");
  add("allow", "--allow", "{}");
  add("batch", "--batch", has_option("--accumulate") ? "{} --accumulate {}" : "{}");
  return words;
}

namespace {

// The ways that options of the running command decide about.
std::vector<std::string> fixed_ways() {
  constexpr std::array<std::pair<const char*, const char*>, 9> deciders = {
      {{"block", "--checkpoint"},
       {"block", "--checkpoint-every"},
       {"budget", "--checkpoint"},
       {"boundaries", "--host-boundaries"},
       {"mlp-rows", "--mlp-rows"},
       {"offload", "--offload"},
       {"fused", "--fused-update"},
       {"8-bit-states", "--optimizer"},
       {"batch", "--accumulate"}}};
  std::vector<std::string> fixed;
  for (const auto& [way, option] : deciders)
    if (is_given(option)) fixed.push_back(way);
  return fixed;
}

// Prints the table of what was chosen, and if nothing runs, what more is to have.
Choice quickest_choice(const Planner& planner, const PlanningOptions& options,
                       const std::optional<DeviceSpeed>& speed) {
  uint64_t bytes = parse_bytes(options.memory);
  // A device that computes in the memory of this process has no more than is left of that.
  if (speed && planner.info().is_cpu) bytes = std::min(bytes, spare_host_bytes());
  ChoiceOptions how{.bytes = bytes,
                    .fixed = fixed_ways(),
                    .allowed = options.allowed,
                    .speed = speed,
                    .threads = std::thread::hardware_concurrency(),
                    .on_progress = progress_of_planning()};
  if (!options.host_memory.empty()) how.host_bytes = parse_bytes(options.host_memory);
  Choices choices(planner, planner.settings(), how);
  std::optional<Choice> chosen = choices.quickest();
  if (!chosen) throw OutOfMemory(refusal_text(choices));
  if (!is_first_rank()) return std::move(*chosen);
  fmt::print("{}{}\n", choice_table(choices, *chosen),
             chosen->options.empty() ? "Nothing needs to change." : "By hand: " + chosen->options);
  if (options.front) fmt::print("\n{}\n", front_table(choices.front()));
  if (options.plan) fmt::print("{}", more_text(choices, *chosen));
  fmt::print("\n");
  return std::move(*chosen);
}

void write_trace(const PlanningOptions& options, const MemoryTrace& trace) {
  if (!is_first_rank()) return;
  if (!options.timeline.empty()) write_timeline_html(options.timeline, trace);
  ReportFile(options.report).write_timeline(trace);
  if (!options.trace.empty()) write_chrome_trace(options.trace, trace);
}

std::string settings_text(const TrainingProgram& program, const StepSettings& s) {
  std::string text = fmt::format("{} in {}, {} {} per step", program.title, name(s.dtype), s.batch,
                                 program.samples);
  const int64_t steps = int64_t{s.accumulate} * s.ranks;
  if (steps > 1) text += fmt::format(", {} steps per update", steps);
  if (s.ranks > 1) text += fmt::format(", rank {} of {}", s.rank, s.ranks);
  if (s.shard != "none") text += fmt::format(", {} in parts", s.shard);
  if (s.states_in_8_bits) text += ", moments in 8 bits";
  if (s.recompute)
    text += s.recompute->evicts ? ", evicting" : ", " + plan_text(*s.recompute);
  else if (s.checkpoint != "none")
    text += fmt::format(", segments of {} {}{}", s.checkpoint_every, s.checkpoint,
                        s.checkpoint_every > 1 ? "s" : "");
  if (s.mlp_rows) text += fmt::format(", MLPs of {} tokens", s.mlp_rows);
  return text;
}

}  // namespace

std::optional<Choice> chosen_by_memory(const TrainingProgram& program,
                                       const PlanningOptions& options) {
  if (!options.decides_all()) return {};
  const std::shared_ptr<Device> device = default_device();
  DeviceSpeed speed = measure_speed(device, program.settings.dtype);
  if (!program.frozen_file.value_or("").empty())
    speed.file = measure_file_speed(*program.frozen_file);
  device->trim();
  device->reset_peak();
  const Planner planner(program);
  Choice choice = quickest_choice(planner, options, speed);
  device->set_memory_limit(parse_bytes(options.memory));
  return choice;
}

namespace {

void warn_of_segments(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  const std::string more =
      problems.size() > 1 ? fmt::format(" ({} more such in the report)", problems.size() - 1) : "";
  fmt::print(
      stderr,
      "note: not all checkpoint segments pay off; {}{}. Instead of marks, --memory-budget and "
      "--recompute recompute where it pays.\n",
      problems[0], more);
}

// Prints rows as they are found, since finding them takes long.
std::vector<FitRow> fit_with_progress(const Planner& planner, uint64_t bytes) {
  const bool has_ranks = planner.settings().ranks > 1;
  const auto print_row = [&](const FitRow& row) {
    const StepSettings& s = row.settings;
    fmt::print(stderr, "  {} {}{}: batch {}\n", name(s.dtype),
               has_ranks ? fmt::format("{} in parts, ", s.shard) : "", row.mode,
               s.batch * s.accumulate * s.ranks);
  };
  return fit(planner, bytes,
             {.shards = has_ranks ? sharding_words() : std::vector<std::string>(),
              .on_row = print_row,
              .threads = std::thread::hardware_concurrency()});
}

// Finds the recomputation that was asked for, on every rank for its own parts. Returns the memory
// that the ranks need if there are several; the program's settings become those of the rank that
// needs most.
std::vector<MemoryReport> plan_ranks(TrainingProgram& program, const Backend& dry,
                                     const PlanningOptions& options) {
  const auto recompute = program.trains ? options.recomputation() : std::nullopt;
  const auto planned = [&](const StepSettings& settings) {
    if (!recompute) return settings;
    return with_recompute(Planner(program, dry), settings, *recompute);
  };
  if (program.settings.ranks == 1) {
    program.settings = planned(program.settings);
    return {};
  }
  std::vector<StepSettings> settings = settings_by_rank(program.settings);
  for (StepSettings& one : settings) one = planned(one);
  const Planner planner(program, dry);
  std::vector<MemoryReport> memory =
      memory_of(planner, settings, std::thread::hardware_concurrency());
  program.settings = settings[static_cast<size_t>(neediest_rank(memory))];
  return memory;
}

std::string launches_of(const TrainingProgram& program, const std::string& device) {
  std::vector<KernelLaunch> launches;
  {
    const auto counting =
        open_counting(device, [&](const KernelLaunch& launch) { launches.push_back(launch); });
    (void)Planner(program, *counting).peak(program.settings);
  }
  return launch_table(launches);
}

void print_plan(const Planner& planner, const PlanningOptions& options, const Forecast& forecast,
                const std::vector<MemoryReport>& by_rank) {
  const auto start = std::chrono::steady_clock::now();
  const TrainingProgram& program = planner.program();
  fmt::print("Predicted for {}, nothing runs there:\n{}\n\n{}\n", planner.info().name,
             settings_text(program, planner.settings()), forecast.str());
  const std::vector<Saving> savings = attribute_savings(planner);
  const Estimate usual = estimate(planner);
  const std::vector<std::string> problems = problems_of_segments(planner, planner.settings());
  if (!by_rank.empty()) fmt::print("{}\n", rank_table(by_rank));
  fmt::print("{}\n{}", savings_table(savings), estimate_text(usual));
  if (!options.decides_all()) warn_of_segments(problems);
  write_trace(options, *forecast.trace);
  nlohmann::json json = {{"program", program.title},
                         {"title", "Plan of " + program.title},
                         {"device", planner.info().name},
                         {"settings", settings_json(planner.settings())},
                         {"memory", memory_json(forecast.memory)},
                         {"work", work_json(forecast)},
                         {"savings", savings_json(savings)},
                         {"estimate", estimate_json(usual)},
                         {"segment_problems", problems},
                         {"timeline", live_bytes(*forecast.trace)}};
  for (const MemoryReport& memory : by_rank) json["ranks"].push_back(memory_json(memory));
  if (!options.fit.empty()) {
    const uint64_t bytes = parse_bytes(options.fit);
    std::fflush(stdout);
    const std::vector<FitRow> rows = fit_with_progress(planner, bytes);
    fmt::print("\n{}", fit_table(rows, bytes, program.samples));
    json["fit"] = {{"bytes", bytes}, {"rows", fit_json(rows)}};
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const uint64_t host = host_memory().peak;
  fmt::print("\n{:.1f} s of dry runs, {} of host memory\n", seconds.count(), format_bytes(host));
  json["seconds"] = seconds.count();
  json["host_peak"] = host;
  ReportFile(options.report).write(json);
}

}  // namespace

void run_plan(const TrainingProgram& program, const PlanningOptions& options,
              const DeviceOptions& device) {
  const std::unique_ptr<Backend> dry = device.open_dry();
  if (!options.profile.empty()) write_file(options.profile, device_profile(device.device));
  TrainingProgram planned = program;
  if (options.decides_all())
    planned.settings = quickest_choice(Planner(planned, *dry), options, {}).settings;
  const std::vector<MemoryReport> by_rank = plan_ranks(planned, *dry, options);
  const Planner planner(planned, *dry);
  std::string misfit;
  Forecast forecast;
  // A user who asks what fits in other memory than the device's is not told what fits in the
  // device's.
  const uint64_t limit = options.decides_all() ? parse_bytes(options.memory) : device.limit();
  const bool elsewhere = !options.fit.empty() && limit == 0;
  try {
    forecast = planner.forecast(planner.settings(),
                                {.memory = elsewhere ? DryMemory::unlimited : DryMemory::of_device,
                                 .memory_limit = limit,
                                 .trace = true});
  } catch (const OutOfMemory& error) {
    misfit = fmt::format("{}\n{}", error.what(), remedies_text(planner, planner.settings(), limit));
    if (planner.settings().budget) throw OutOfMemory(misfit);  // there is no plan to show
    forecast =
        planner.forecast(planner.settings(), {.memory = DryMemory::unlimited, .trace = true});
  }
  print_plan(planner, options, forecast, by_rank);
  if (options.launches) fmt::print("\n{}", launches_of(planned, device.device));
  if (!misfit.empty()) throw OutOfMemory(misfit);
}

void run_planned(TrainingProgram program, const PlanningOptions& options,
                 const std::function<void(PlannedRun&)>& body) {
  std::function<void(const MemoryTrace&)> on_trace;
  const bool has_page = !ReportFile(options.report).folder().empty();
  if (!options.timeline.empty() || !options.trace.empty() || has_page)
    on_trace = [&](const MemoryTrace& trace) { write_trace(options, trace); };
  PlannedRun run(std::move(program), options.recomputation(), std::move(on_trace));
  if (!options.decides_all()) warn_of_segments(run.segment_problems());
  if (!options.profile.empty()) {
    const DeviceInfo& info = default_device()->info();
    check(info.backend == "vulkan", "options", "--save-profile is of Vulkan devices, got '{}'",
          info.name);
    write_file(options.profile, device_profile("vulkan:uuid=" + info.uuid));
  }
  run.guard([&] { body(run); });
}

RunAccount account_of(PlannedRun& run) {
  const auto waiting = show_waiting("accounting for memory, by dry runs");
  RunAccount account = run.account();
  if (rank_count() == 1) return account;
  account.rank_peaks = gather(world(), account.memory.peak);
  account.predicted_rank_peaks = gather(world(), account.predicted_peak);
  return account;
}

nlohmann::json account_json(const RunAccount& account) {
  nlohmann::json json = device_json(account.memory);
  json["predicted_peak"] = account.predicted_peak;
  json["steps_peak"] = account.steps_peak;
  json["host_peak"] = account.host_peak;
  json["segment_problems"] = account.segment_problems;
  for (size_t rank = 0; rank < account.rank_peaks.size(); ++rank)
    json["ranks"].push_back({{"peak", account.rank_peaks[rank]},
                             {"predicted_peak", account.predicted_rank_peaks[rank]}});
  json["savings"] = savings_json(account.savings);
  if (!account.timeline.empty()) json["timeline"] = account.timeline;
  return json;
}

}  // namespace rw
