// The rows of the memory benchmark: what others published, run here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure.h"
#include "report.h"

namespace rw::memory {

struct RowOptions {
  Profile profile;              // of dry runs
  std::string device = "auto";  // of real runs
  bool all = false;             // every configuration, not only the quick ones
  bool measured = false;        // results are really run, too, where the device has the memory
  std::function<void(const Result&)> note;  // told of every result
};

struct Row {
  const char* name;
  const char* what;  // for --help
  bool quick;        // part of the default run
  void (*run)(const RowOptions& options, Report& report);
};
const std::vector<Row>& rows();

// Rows; each adds its results, bars and fits.
void real_row(const RowOptions& options, Report& report);
void openai_row(const RowOptions& options, Report& report);
void depth122_row(const RowOptions& options, Report& report);
void resnet50_row(const RowOptions& options, Report& report);
void bert_row(const RowOptions& options, Report& report);
void resnet1001_row(const RowOptions& options, Report& report);
void chain_row(const RowOptions& options, Report& report);
void steps_row(const RowOptions& options, Report& report);
void decoder_row(const RowOptions& options, Report& report);

// Real runs whose peak or tape is not the predicted one, one line each.
std::vector<std::string> mispredictions(const Report& report);

// What rows share.
const Result& add(const RowOptions& options, Report& report, Result result);
// The cheapest plan in so many bytes by FLOPs, or the least there is, and where the device is at
// hand the quickest.
Result add_budget(const RowOptions& options, Report& report, Bench& bench, uint64_t bytes);
// Every choice between memory and work; dry runs only, so not where everything really runs.
void add_front(const RowOptions& options, Report& report, Bench& bench);
// Plain steps, the model's own segments, the least memory, and plans that keep a half and a third
// of the tape.
void add_ways(const RowOptions& options, Report& report, Bench& bench);
// `most_recompute`: share of FLOPs; 0 where none was asked for.
void add_bar(Report& report, const Result& ours, std::string what, std::string theirs,
             uint64_t bytes, double most_recompute);
std::string percent(double share);  // "+12.3 %"

}  // namespace rw::memory
