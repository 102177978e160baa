// The figures of the memory benchmark, and the files that hold them.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../../trainer/report/chart.h"
#include "workload.h"

namespace rw::memory {

// A real run of the same steps.
struct RealRun {
  std::string device;
  uint64_t peak = 0;      // bytes live in the arena
  uint64_t reserved = 0;  // blocks held for them
  uint64_t process = 0;   // most bytes of RAM that the process held, less those before the run
  TapeStats tape;
  double seconds = 0;  // per step
};

// Real steps, run in turn with the plain ones of the same model.
struct StepTimes {
  std::string device;
  size_t rounds = 0;
  double seconds = 0;  // per step, median
  // The additional time per sample, relative to the plain run of the same round: median and range.
  double on_top = 0, least = 0, most = 0;
};

// One workload, run in one way. Figures are bytes unless said otherwise.
struct Result {
  std::string row;     // of the benchmark, such as "openai"
  std::string method;  // plain, block, memory, speed, nested, budget, time, front
  std::string device;  // whose profile the dry run followed
  Case about;
  uint64_t budget = 0;     // given to the method; 0: none
  TapeStats tape;          // between forward and backward
  uint64_t peak = 0;       // most bytes alive in the arena
  uint64_t reserved = 0;   // blocks held for them
  uint64_t naive = 0;      // bytes if nothing were freed during a step
  uint64_t moved = 0;      // copied in every step, to make room
  double flops = 0;        // of a step, replays included
  double recompute = 0;    // FLOPs of replays over those of forward and backward
  double modelled = 0;     // the same share in time, by OpCost::total()
  double dry_seconds = 0;  // spent on finding and measuring this
  std::optional<RealRun> real;
  std::optional<StepTimes> times;
  // Runs the steps on the default device (Workload::run).
  std::function<void(TapeStats* tape, double* seconds)> run;
};

// A figure that Rewind should reach.
struct Bar {
  std::string row, what, theirs, bar, ours;
  bool met = false;
};

// Fits peak = factor * scale^exponent by least squares of logarithms, and the best factor *
// sqrt(scale).
struct Fit {
  std::string row, series;
  double factor = 0, exponent = 0, sqrt_factor = 0;  // in MB
};

struct Report {
  std::string machine, command, profile;
  std::vector<Result> results;
  std::vector<Bar> bars;
  std::vector<Fit> fits;
};

double megabytes(uint64_t bytes);  // of 1,000,000 bytes
// Returns the properties that distinguish the series of a row: "BatchNorm off, f32".
std::string variant(const Case& about);

std::string step_time(const Result& r);    // "0.123 s", or nothing
std::string time_on_top(const Result& r);  // "+12.3 % (+11.0 to +14.2)", or nothing

nlohmann::json to_json(const Report& report);
std::string to_csv(const Report& report);
std::string to_markdown(const Report& report);
std::string to_html(const Report& report);           // self-contained
std::vector<Chart> charts_of(const Report& report);  // all charts of the report

// Writes memory.json, .csv, .md, .html and a picture of each chart (memory-1.svg and so on) into
// `folder`, which it makes if needed; `name` replaces "memory".
void write_report(const Report& report, const std::filesystem::path& folder,
                  const std::string& name);

}  // namespace rw::memory
