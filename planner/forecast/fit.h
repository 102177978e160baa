// The largest batches that fit in some memory, by dry runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner.h"

namespace rw {

// One way to train, and the largest batch that fits with it.
struct FitRow {
  // plain, block checkpoint, or a kind of budget; what lies in host memory; fused updates.
  std::string mode;
  StepSettings settings;  // batch: the largest that fits; 0: not even one sample
  Forecast forecast;      // of a step with them, of ranks on that with the least room
  double cost = 1;        // modelled time of an update, against all kept on the device
  std::string limit;      // the reason why it is not larger, if that is not the memory
};

// The options of fit().
struct FitOptions {
  std::vector<DType> dtypes = {DType::f32, DType::f16};  // of activations
  // Words for StepSettings::shard; if there are none, only that of the planner's settings.
  std::vector<std::string> shards = {};
  // Receives every row as soon as it is found, one at a time.
  std::function<void(const FitRow&)> on_row = {};
  int candidates = 8;  // plans to measure for budgets
  // The number of threads that make the program and run it dry at a time. With more than one,
  // several threads call its make() at once.
  unsigned threads = 1;
};
// The largest batches of the planner's program in `bytes` of device memory, on each rank if there
// are several: for each dtype and way of sharding, with and without recomputation, with states and
// parameters on the device or in host memory, with updates after backward or inside it, with and
// without the settings' accumulation. Rows that another one of the same dtype, sharding and
// accumulation beats in everything, or that does as well and comes first, are left out.
std::vector<FitRow> fit(const Planner& planner, uint64_t bytes, const FitOptions& options = {});

// The rows as a table for people, with `bytes` in its heading; `samples` is the name of the
// samples. With several ranks, accumulation and batches are those of all together; per step, those
// of one.
std::string fit_table(const std::vector<FitRow>& rows, uint64_t bytes,
                      const std::string& samples = "samples");

}  // namespace rw
