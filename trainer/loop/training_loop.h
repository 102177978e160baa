// The loop of a training program, which takes steps, shows progress and keeps snapshots.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>

#include "../../io/snapshot/snapshot.h"
#include "../../optim/ema.h"
#include "../program/numerics.h"
#include "../program/planning.h"
#include "../program/progress.h"
#include "../program/ranks.h"
#include "../program/settings.h"
#include "meter.h"

namespace rw {

// The options of a TrainingLoop.
struct LoopOptions {
  int64_t steps = 1;                 // of training, including those before a snapshot
  int64_t batches = 1;               // per epoch
  int64_t per_sample = 1;            // units of a sample, for the rate
  std::string unit = "samples";      // the name of the samples
  bool has_accuracy = true;          // the meter counts hits, too
  bool quiet = false;                // show no progress
  int64_t points = 10;               // points of the history, where no terminal shows more
  std::string snapshots = {};        // their folder; empty: none are kept
  int64_t steps_per_snapshot = 1;    // the least number
  DataParallel* parallel = nullptr;  // the ranks that share the steps
  bool restart = false;              // remove existing snapshots
  bool change_dtype = false;         // resume from a snapshot of another dtype
  std::string base = {};             // as TrainingState
  bool allow_rise = false;           // continue where the loss exceeds its initial value by half
  // Runs the last step's forward pass again and says which op overflowed first, in a clause behind
  // a colon; may be empty, and return nothing.
  std::function<std::string()> find_overflow = {};
  Settings settings = {};  // of the run; the loop adds the device
};

// Takes the steps of a training program, from a snapshot on if there is one.
class TrainingLoop {
 public:
  // References must outlive the loop. `numerics` and `average` belong to the optimizer; snapshots
  // keep their state.
  TrainingLoop(LoopOptions options, Module& model, Optimizer& optimizer, Meter& meter,
               PlannedRun& planned, const NumericsWatch* numerics = nullptr,
               ParameterAverage* average = nullptr);

  // Resumes from the newest snapshot that is whole, if there are any snapshots. Throws FileError if
  // all are damaged or belong to another run; warns about damaged ones.
  void resume();
  // Calls `step` with the number of each step that remains for this rank, from 0 on; it returns the
  // samples on which it trained. After a SIGINT,
  // SIGTERM or SIGHUP it finishes the step (in ranks, the update) and whatever a snapshot needs,
  // and throws Interrupted. With an average, it calls `evaluate` after every epoch but the last;
  // json() has the results, and their time does not count as training. Throws NumericsError if no
  // update was made, if the loss is not finite, or if it has risen by half over its start.
  void run(const std::function<int64_t(int64_t)>& step,
           const std::function<nlohmann::json()>& evaluate = {});

  int64_t start() const { return start_; }  // steps that were taken before this run
  double rate() const { return rate_; }     // samples per second, after run()
  // Returns two lines about the training and its memory, after run().
  std::string summary(const RunAccount& account) const;
  // Returns the settings, updates, time and history for reports.
  nlohmann::json json() const;

 private:
  TrainingState state();
  double rate(double seconds) const;  // waits for the other ranks
  void show(int64_t done, Progress& progress);
  void check_finite(double loss, int64_t done) const;
  void begin_loss(const Meter::Values& values, int64_t done);
  void check_rise(const Meter::Values& values, int64_t done);
  double trained_seconds(const Progress& progress) const;
  void evaluate_epoch(int64_t done, const std::function<nlohmann::json()>& evaluate,
                      Progress& progress);
  void check_resumed(const TrainingPosition& position);
  void write_snapshot(int64_t done);
  [[noreturn]] void stop(int64_t done) const;

  LoopOptions options_;
  std::optional<SnapshotDirectory> snapshots_;  // of all ranks; empty: none are kept
  Module& model_;
  Optimizer& optimizer_;
  Meter& meter_;
  PlannedRun& planned_;
  const NumericsWatch* numerics_;  // null: nothing is watched
  ParameterAverage* average_;      // null: there is none
  int64_t start_ = 0;
  bool changes_scaler_ = false;  // the dtype differs from the snapshot's
  int64_t trained_ = 0;          // samples, by this rank
  // Sums over targets and their counts: of the first steps of the whole run, and of those since the
  // loss was last compared with their mean, at step `compared_`. It was too high `rises_` times in
  // succession.
  Meter::Values first_, recent_;
  std::optional<double> start_loss_;  // empty: the first steps had too few targets
  int64_t compared_ = 0, rises_ = 0;
  double seconds_ = 0, evaluation_seconds_ = 0, rate_ = 0;
  nlohmann::json history_ = nlohmann::json::array(), evaluations_ = nlohmann::json::array();
};

}  // namespace rw
