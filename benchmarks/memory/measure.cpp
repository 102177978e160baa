#include "benchmarks/memory/measure.h"

#include <algorithm>
#include <chrono>

#include "backends/open.h"
#include "core/memory/process_memory.h"
#include "planner/search/plans.h"

namespace rw::memory {

namespace {

StepSettings following(Plan plan) {
  return {.recompute = std::make_shared<const Plan>(std::move(plan))};
}

}  // namespace

Profile open_profile(const std::string& device) {
  const std::shared_ptr<const Backend> dry = open_backend("dry:" + device);
  DeviceInfo info = dry->info();
  info.memory_bytes = uint64_t{1} << 44;
  return {fmt::format("{} ({})", info.name, info.driver), [dry, info] { return dry->dry(info); }};
}

Bench::Bench(std::string row, Workload workload, Profile profile, int candidates)
    : row_(std::move(row)),
      workload_(std::move(workload)),
      profile_(std::move(profile)),
      candidates_(candidates) {}

Search& Bench::search(bool by_time) {
  // The bars are in FLOPs, and of recomputation alone: memory traffic breaks ties, no more.
  std::optional<Search>& search = by_time ? time_search_ : search_;
  if (!search)
    search.emplace(
        profile_.open, [this] { workload_.run(); },
        AutoRecomputeOptions{.flops_per_byte = 2,
                             .times = by_time ? profile_.times : nullptr,
                             .candidates = candidates_,
                             .effort = 8,
                             .host_bytes = 0});
  return *search;
}

Result Bench::predict(const std::string& method, const StepSettings& way) const {
  Result r{.row = row_, .method = method, .device = profile_.name, .about = workload_.about};
  const auto program = [&] { workload_.run(way, &r.tape); };
  const Forecast first = dry_run(profile_.open(), program);
  const Forecast forecast = dry_run(profile_.open(), program, {.learnt = first.steps});
  r.run = [workload = workload_, way, steps = first.steps](TapeStats* tape, double* seconds) {
    default_device()->learn(steps);  // else the second and the third step pack memory anew
    workload.run(way, tape, seconds);
  };
  r.peak = forecast.memory.peak;
  r.reserved = forecast.memory.peak_reserved;
  r.naive = forecast.memory.naive;
  r.moved = forecast.memory.moved;
  r.flops = forecast.flops() / 2;  // steps
  r.recompute = forecast.recompute_share();
  r.modelled = modelled_recompute_share(forecast.work);
  return r;
}

Result Bench::measure(const std::string& method, const std::function<StepSettings()>& find) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const StepSettings way = find();
  Result r = predict(method, way);
  r.dry_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return r;
}

Result Bench::plain() {
  return measure("plain", [] { return StepSettings{}; });
}

Result Bench::block(int every) {
  return measure("block",
                 [&] { return StepSettings{.checkpoint = "block", .checkpoint_every = every}; });
}

Result Bench::memory() {
  return measure("memory", [&] { return following(search().memory().plan); });
}

Result Bench::speed() {
  return measure("speed", [&] { return following(search().speed().plan); });
}

Result Bench::nested(int leaf) {
  return measure("nested", [&] {
    const Graph& recorded = search().graph();
    const auto records = static_cast<uint32_t>(recorded.records.size());
    return following(follow(recorded, nested_halving(records, static_cast<uint32_t>(leaf))));
  });
}

Result Bench::budget(uint64_t bytes) {
  return budget("budget", search(), bytes);
}

// The cheapest whose values stay where they are in blocks of so many bytes, or else move there.
Result Bench::budget(const std::string& method, Search& search, uint64_t bytes) {
  const auto keeping_to = [&](const Candidate& choice, uint64_t blocks) {
    StepSettings way = following(choice.plan);
    way.budget = blocks;
    Result r = measure(method, [&] { return way; });
    r.budget = bytes;
    return r;
  };
  const Candidate cheapest = search.budget(bytes);
  std::optional<Result> moving;
  for (const Candidate& choice : search.candidates()) {
    if (choice.peak() > bytes) continue;
    try {
      Result r = keeping_to(choice, bytes);
      if (r.moved == 0) return r;
      if (!moving) moving = std::move(r);
    } catch (const OutOfMemory&) {  // live values fit, but not in blocks as the device has them
    }
  }
  return moving ? *moving : keeping_to(cheapest, 0);
}

std::optional<Result> Bench::try_budget(uint64_t bytes, bool by_time) {
  Search& search = this->search(by_time);
  if (search.candidates().back().peak() > bytes) return std::nullopt;
  return budget(by_time ? "time" : "budget", search, bytes);
}

std::optional<Result> Bench::fitting(uint64_t bytes) {
  if (search().candidates().back().peak() > bytes) return std::nullopt;
  search().refine(bytes);
  for (const Candidate& choice : search().candidates()) {
    if (choice.peak() > bytes) continue;
    const StepSettings way = following(choice.plan);
    if (!peak_within(workload_, profile_, way, bytes)) continue;
    Result r = measure("budget", [&] { return way; });
    r.budget = bytes;
    return r;
  }
  return std::nullopt;
}

Result Bench::least() {
  return measure("budget", [&] { return following(search().candidates().back().plan); });
}

std::vector<Result> Bench::front() {
  std::vector<Result> results;
  for (const Candidate& choice : search().candidates())
    results.push_back(measure("front", [&] { return following(choice.plan); }));
  return results;
}

bool has_room(const DeviceInfo& device, const Result& result) {
  return result.reserved <= device.memory_bytes / 8 * 7;
}

void run_really(Result& result, const std::string& device_name) {
  const auto device = Device::create(open_backend(device_name));
  if (!has_room(device->info(), result)) return;
  reset_host_peak();
  const uint64_t before = host_memory().peak;
  const DeviceScope scope(device);
  RealRun real{.device = fmt::format("{} ({})", device->info().name, device->info().driver)};
  result.run(&real.tape, &real.seconds);
  const MemoryReport report = device->memory_report();
  real.peak = report.peak;
  real.reserved = report.peak_reserved;
  const uint64_t after = host_memory().peak;
  real.process = after - std::min(before, after);  // a driver may give memory back
  result.real = std::move(real);
}

std::optional<uint64_t> peak_within(const Workload& workload, const Profile& profile,
                                    const StepSettings& settings, uint64_t limit) {
  try {
    const auto program = [&] { workload.run(settings); };
    const Forecast first = dry_run(profile.open(), program);
    if (first.memory.peak > limit) return std::nullopt;
    dry_run(profile.open(), program, {.memory_limit = limit, .learnt = first.steps});
    return first.memory.peak;
  } catch (const OutOfMemory&) {
    return std::nullopt;
  }
}

}  // namespace rw::memory
