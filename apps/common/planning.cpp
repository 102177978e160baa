#include "apps/common/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "apps/common/estimate.h"
#include "apps/common/fit.h"
#include "apps/common/remedies.h"
#include "rewind/backends/open.h"
#include "rewind/core/autograd/checkpoint.h"
#include "rewind/core/base/environment.h"
#include "rewind/core/memory/process_memory.h"
#include "rewind/data/files.h"
#include "rewind/io/timeline.h"
#include "rewind/optim/environment.h"

namespace rw {

void PlanningOptions::add_to(CLI::App& app) {
  set_obeys_environment(false);  // these options do
  budget = env_text("REWIND_MEMORY_BUDGET");
  timeline = env_text("REWIND_TIMELINE");
  recompute = env_text("REWIND_RECOMPUTE");
  if (checkpoints_blocks() || recompute == "0") recompute.clear();  // models' own
  app.add_flag("--plan", plan, "do not train: predict memory and work of a step, and stop");
  app.add_option("--fit", fit, "with --plan: the largest batches that fit in this memory, as 8GiB")
      ->needs("--plan");
  app.add_option("--save-profile", profile,
                 "write the device's limits, for --device dry:FILE.json");
  app.add_option("--memory-budget", budget,
                 "recompute just enough to stay below this, as 2GiB, instead of --checkpoint");
  app.add_option(
         "--recompute", recompute,
         "instead of --checkpoint: memory (the least, with every op at most twice), speed (keeps "
         "matrix products), or evict (drops and makes again while it runs, to stay below "
         "--memory-budget)")
      ->check(CLI::IsMember({"memory", "speed", "evict"}));
  app.add_option("--timeline", timeline, "write what is in memory during an update to this page");
  app.add_option("--trace", trace, "the same for Perfetto or chrome://tracing, with kernel times");
}

namespace {

void write_trace(const PlanningOptions& options, const MemoryTrace& trace) {
  if (!options.timeline.empty()) write_timeline_html(options.timeline, trace);
  if (!options.trace.empty()) write_chrome_trace(options.trace, trace);
}

// Recomputation for --memory-budget and --recompute.
void apply_recompute(const Planner& planner, const PlanningOptions& options,
                     StepSettings& settings) {
  if ((options.budget.empty() && options.recompute.empty()) || !planner.outline().trains) return;
  // The environment's word did not pass the command line.
  const std::string& how = options.recompute;
  check(how.empty() || how == "memory" || how == "speed" || how == "evict", "options",
        "--recompute or REWIND_RECOMPUTE must be memory, speed or evict (or block), got '{}'", how);
  check(how != "evict" || !options.budget.empty(), "options",
        "--recompute evict needs --memory-budget");
  if (!options.budget.empty()) settings.budget = parse_bytes(options.budget);
  if (options.recompute == "evict") {
    settings.recompute = std::make_shared<const Recompute>(Recompute{.evicts = true});
    return;
  }
  StepSettings planned = settings;
  planned.checkpoint = "none";
  planned.accumulate = std::min(settings.accumulate, 3u);
  RecomputeSearch search = planner.search(planned);
  const RecomputeChoice choice = options.recompute == "memory"  ? search.memory()
                                 : options.recompute == "speed" ? search.speed()
                                                                : search.budget(settings.budget);
  check<OutOfMemory>(!settings.budget || choice.peak() <= settings.budget, "memory budget",
                     "the step must fit in {}, with --recompute {} it needs {}", options.budget,
                     options.recompute, format_bytes(choice.peak()));
  settings.recompute = std::make_shared<const Recompute>(choice.recompute);
}

std::string settings_text(const PlannedProgram& program) {
  const StepSettings& s = program.settings;
  std::string text = fmt::format("{} in {}, {} {} per step", program.title, name(s.dtype), s.batch,
                                 program.samples);
  if (s.accumulate > 1) text += fmt::format(", {} steps per update", s.accumulate);
  if (s.recompute)
    text += s.recompute->evicts ? ", evicting" : ", planned recomputation";
  else if (s.checkpoint != "none")
    text += fmt::format(", segments of {} {}{}", s.checkpoint_every, s.checkpoint,
                        s.checkpoint_every > 1 ? "s" : "");
  return text;
}

// What is wrong with the segments that the model was marked with: in the whole run, and each of
// them.
std::vector<std::string> problems_of_segments(const Planner& planner, StepSettings settings) {
  std::vector<std::string> problems;
  if (settings.checkpoint == "none" || settings.recompute || !planner.outline().trains)
    return problems;
  settings.accumulate = std::min(settings.accumulate, 3u);
  const auto peak = [&](const StepSettings& s) {
    return planner.forecast(s, {.room = Room::any}).memory.peak;
  };
  StepSettings plain = settings;
  plain.checkpoint = "none";
  const uint64_t with = peak(settings), without = peak(plain);
  if (with >= without)
    problems.push_back(fmt::format("the peak of the run is {} with all segments and {} without any",
                                   format_bytes(with), format_bytes(without)));
  for (const SegmentReport& report : planner.segment_reports(settings))
    if (!report.problem.empty())
      problems.push_back(fmt::format("segment {}: {}", report.segment, report.problem));
  return problems;
}

void warn_of_segments(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  const std::string more =
      problems.size() > 1 ? fmt::format(" ({} more such in the report)", problems.size() - 1) : "";
  fmt::print(stderr,
             "note: not all checkpoint segments pay; {}{}. Instead of marks, --memory-budget and "
             "--recompute recompute where it pays.\n",
             problems[0], more);
}

std::string work_text(const StepForecast& forecast) {
  std::string text = "Work of an update:\n";
  uint64_t calls = 0;
  for (int i = 0; i < phase_count; ++i) {
    const Work& work = forecast.work[i];
    calls += work.calls;
    text += fmt::format("  {:<10}{:>12.3f} GFLOP{:>14} read and written{:>8} kernels\n",
                        name(static_cast<Phase>(i)), work.flops / 1e9, format_bytes(work.bytes),
                        work.calls);
  }
  return text + fmt::format(
                    "  together  {:>12.3f} GFLOP, recomputation {:.1f} % of the rest; {} "
                    "kernels, {} allocations\n",
                    forecast.flops() / 1e9, 100 * forecast.recompute_share(), calls,
                    forecast.allocations);
}

nlohmann::json work_json(const StepForecast& forecast) {
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
          {"memory_budget", s.budget},
          {"evicts", s.recompute && s.recompute->evicts}};
}

void print_plan(const PlannedProgram& program, const Planner& planner,
                const PlanningOptions& options, const StepForecast& forecast,
                const std::string& report) {
  const auto start = std::chrono::steady_clock::now();
  const StepSettings& settings = program.settings;
  fmt::print("Predicted for {}, nothing runs there:\n{}\n\n{}\n{}\n", planner.info().name,
             settings_text(program), forecast.memory.str(), work_text(forecast));
  const std::vector<Saving> savings = attribute_savings(planner, settings);
  const Estimate usual = estimate(planner, program);
  const std::vector<std::string> problems = problems_of_segments(planner, settings);
  fmt::print("{}\n{}", savings_table(savings), estimate_text(usual));
  warn_of_segments(problems);
  write_trace(options, *forecast.trace);
  nlohmann::json json = {{"program", program.title},
                         {"device", planner.info().name},
                         {"settings", settings_json(settings)},
                         {"memory", nlohmann::json::parse(forecast.memory.json())},
                         {"work", work_json(forecast)},
                         {"savings", savings_json(savings)},
                         {"estimate", estimate_json(usual)},
                         {"segment_problems", problems}};
  if (!options.fit.empty()) {
    const uint64_t bytes = parse_bytes(options.fit);
    const std::vector<FitRow> rows = largest_batches(planner, settings, bytes);
    fmt::print("\n{}", fit_table(rows, bytes, program.samples));
    json["fit"] = {{"bytes", bytes}, {"rows", fit_json(rows)}};
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const uint64_t host = host_memory().peak;
  fmt::print("\n{:.1f} s of dry runs, {} of host memory\n", seconds.count(), format_bytes(host));
  json["seconds"] = seconds.count();
  json["host_peak"] = host;
  if (!report.empty()) write_json(report, json);
}

}  // namespace

void run_plan(const PlannedProgram& program, const PlanningOptions& options,
              const DeviceOptions& device, const std::string& report) {
  const std::unique_ptr<Backend> dry = device.open_dry();
  if (!options.profile.empty()) write_file(options.profile, device_profile(device.device));
  const Planner planner(*dry, program.make, program.outline);
  PlannedProgram planned = program;
  apply_recompute(planner, options, planned.settings);
  std::string misfit;
  StepForecast forecast;
  // Who asks what fits in other memory than the device's is not told what fits in that one.
  const bool elsewhere = !options.fit.empty() && device.limit() == 0;
  try {
    forecast = planner.forecast(planned.settings, {.room = elsewhere ? Room::any : Room::device,
                                                   .memory_limit = device.limit(),
                                                   .trace = true});
  } catch (const OutOfMemory& error) {
    misfit = error.what();
    forecast = planner.forecast(planned.settings, {.room = Room::any, .trace = true});
  }
  print_plan(planned, planner, options, forecast, report);
  if (!misfit.empty())
    throw OutOfMemory(
        fmt::format("{}\n{}", misfit, remedies_text(planner, planned, device.limit())));
}

PlannedRun::PlannedRun(PlannedProgram program, const PlanningOptions& options)
    : program_(std::move(program)),
      options_(options),
      planner_(
          std::make_unique<Planner>(default_device()->backend(), program_.make, program_.outline)) {
  if (!options.profile.empty()) {
    const DeviceInfo& info = default_device()->info();
    check(info.backend == "vulkan", "options", "--save-profile is of Vulkan devices, got '{}'",
          info.name);
    write_file(options.profile, device_profile("vulkan:uuid=" + info.uuid));
  }
  default_device()->trim();  // of what an earlier run left, as predicted
  apply_recompute(*planner_, options, program_.settings);
  // A plan keeps to the budget by itself; what does something else than planned is held to it.
  if (program_.settings.budget) budget_.emplace(program_.settings.budget);
  if (program_.most_evaluated)
    program_.settings.evaluation_batch = planner_->evaluation_batch(
        program_.settings, program_.most_evaluated, default_device()->memory_limit());
  segment_problems_ = problems_of_segments(*planner_, program_.settings);
  warn_of_segments(segment_problems_);
  default_device()->learn(planner_->steps(program_.settings));
}

PlannedRun::~PlannedRun() {
  if (tracing_) default_device()->stop_trace();
}

void PlannedRun::guard(const std::function<void()>& body) {
  try {
    body();
  } catch (const OutOfMemory& error) {
    const uint64_t limit = default_device()->memory_limit();
    throw OutOfMemory(
        fmt::format("{}\n{}", error.what(), remedies_text(*planner_, program_, limit)));
  }
}

void PlannedRun::before_step(int64_t step, int64_t total) {
  if (options_.timeline.empty() && options_.trace.empty()) return;
  if (trace_begin_ < 0) {  // an update in steady state, of its steps at most 8
    const int64_t update = program_.settings.accumulate;
    trace_begin_ = std::min(step + 2 * update, total - 1);
    trace_end_ = trace_begin_ + std::min<int64_t>(update, 8);
  }
  if (step == trace_begin_) {
    default_device()->start_trace();
    tracing_ = true;
  }
  if (step == trace_end_) stop_trace();
}

void PlannedRun::after_steps() {
  stop_trace();
  steps_ = default_device()->memory_report();
}

void PlannedRun::stop_trace() {
  if (!tracing_) return;
  tracing_ = false;
  write_trace(options_, default_device()->stop_trace());
}

PlannedRun::Account PlannedRun::account() {
  Account account{.memory = default_device()->memory_report(),
                  .steps_peak = steps_.peak,
                  .host_peak = host_memory().peak};
  account.memory.naive = steps_.naive;
  account.segment_problems = segment_problems_;
  account.predicted_peak = planner_->forecast(settings(), {.room = Room::any}).memory.peak;
  account.savings = attribute_savings(*planner_, settings());
  return account;
}

std::string PlannedRun::Account::str() const {
  const std::string prediction =
      predicted_peak == memory.peak
          ? fmt::format("A dry run predicts this peak to the byte ({}).", predicted_peak)
          : fmt::format("A dry run predicts {} bytes, the peak has {}.", predicted_peak,
                        memory.peak);
  return fmt::format("{}{}\nHost memory of this process: at most {}\n\n{}", memory.str(),
                     prediction, format_bytes(host_peak), savings_table(savings));
}

nlohmann::json PlannedRun::Account::json() const {
  nlohmann::json json = device_json(memory);
  json["predicted_peak"] = predicted_peak;
  json["steps_peak"] = steps_peak;
  json["host_peak"] = host_peak;
  json["segment_problems"] = segment_problems;
  json["savings"] = savings_json(savings);
  return json;
}

}  // namespace rw
