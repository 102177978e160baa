// The rows of the memory benchmark: published experiments, repeated here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure.h"
#include "report.h"

namespace rw::memory {

inline constexpr uint64_t MB = 1'000'000;

struct RowOptions {
  Profile profile;              // of dry runs
  std::string device = "auto";  // of real runs
  bool all = false;             // every configuration, not only the quick ones
  bool measured = false;        // also runs results really, where the device has the memory
  std::function<void(const Result&)> note;  // receives every result
};

struct Row {
  const char* name;
  const char* what;  // for --help
  bool quick;        // part of the default run
  void (*run)(const RowOptions& options, Report& report);
};
const std::vector<Row>& rows();

// The rows. Each adds its results, bars and fits.
void real_row(const RowOptions& options, Report& report);
void openai_row(const RowOptions& options, Report& report);
void depth122_row(const RowOptions& options, Report& report);
void resnet50_row(const RowOptions& options, Report& report);
void bert_row(const RowOptions& options, Report& report);
void resnet1001_row(const RowOptions& options, Report& report);
void chain_row(const RowOptions& options, Report& report);
void steps_row(const RowOptions& options, Report& report);
void decoder_row(const RowOptions& options, Report& report);
void language_row(const RowOptions& options, Report& report);

// One line for each real run whose peak or tape differs from the prediction.
std::vector<std::string> mispredictions(const Report& report);

// Adds a result to the report and returns it there. All rows end with this.
const Result& add(const RowOptions& options, Report& report, Result result);
// Adds the plan with the fewest FLOPs within `bytes`, or the one with the least memory if none
// fits; first, if the profile has a device's times, the fastest plan.
Result add_budget(const RowOptions& options, Report& report, Bench& bench, uint64_t bytes);
// Every choice between memory and work; dry runs only, so not where everything really runs.
void add_front(const RowOptions& options, Report& report, Bench& bench);
// Plain steps, the model's own segments, the least memory, and plans that keep a half and a third
// of the tape.
void add_ways(const RowOptions& options, Report& report, Bench& bench);
// `most_recompute` is a share of FLOPs; 0: the row has no such target.
void add_bar(Report& report, const Result& ours, std::string what, std::string theirs,
             uint64_t bytes, double most_recompute);
std::string percent(double share);  // "+12.3 %"

}  // namespace rw::memory
