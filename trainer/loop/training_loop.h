// The loop of a training program: takes steps, shows how they go, keeps snapshots.
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

// What a loop is told.
struct LoopOptions {
  int64_t steps = 1;                 // of the training, those before a snapshot included
  int64_t batches = 1;               // per epoch
  int64_t samples = 1;               // per step, for the rate
  std::string unit = "samples";      // what they are called
  bool has_accuracy = true;          // the meter counts hits, too
  bool quiet = false;                // show no progress
  int64_t points = 10;               // of the history, where no terminal shows more
  std::string snapshots = {};        // folder; empty: none are kept
  int64_t steps_per_snapshot = 1;    // at least
  DataParallel* parallel = nullptr;  // of several ranks: they share out the steps
  bool restart = false;              // forget the snapshots that there are
  bool change_dtype = false;         // go on from one of another dtype
  Settings settings = {};            // of the run; the loop adds the device
};

// Takes the steps of a training program, from a snapshot on if there is one.
class TrainingLoop {
 public:
  // References must outlive the loop. `numerics` and `average`, which snapshots keep, are of the
  // optimizer.
  TrainingLoop(LoopOptions options, Module& model, Optimizer& optimizer, Meter& meter,
               ProgramRun& planned, const NumericsWatch* numerics = nullptr,
               ParameterAverage* average = nullptr);

  // From the newest snapshot that is whole, if there are any: FileError where all are damaged or
  // of another run. Warns about damaged ones.
  void resume();
  // Calls `step` with the number of each step that is left, from 0, and on this rank. After a
  // SIGINT or SIGTERM it finishes the step (ranks: the update), and what it takes to write a
  // snapshot, and throws Interrupted. With an average, `evaluate` is called after every epoch but
  // the last; json() has what it found, and its time does not count as training. NumericsError
  // where no update was made.
  void run(const std::function<void(int64_t)>& step,
           const std::function<nlohmann::json()>& evaluate = {});

  int64_t start() const { return start_; }  // steps that were taken before
  double rate() const;                      // samples per second, after run()
  // What was trained in which memory, in two lines, after run().
  std::string summary(const RunAccount& account) const;
  // For reports: the settings, updates, time, and what was shown.
  nlohmann::json json() const;

 private:
  TrainingState state();
  double rate(int64_t done, double seconds) const;
  void show(int64_t done, Progress& progress);
  double trained_seconds(const Progress& progress) const;
  void evaluate_epoch(int64_t done, const std::function<nlohmann::json()>& evaluate,
                      Progress& progress);
  void check_resumed(const TrainingPosition& position);
  void write_snapshot(int64_t done);
  [[noreturn]] void stop(int64_t done) const;

  LoopOptions options_;
  std::optional<SnapshotDirectory> snapshots_;  // of all ranks; none are kept
  Module& model_;
  Optimizer& optimizer_;
  Meter& meter_;
  ProgramRun& planned_;
  const NumericsWatch* numerics_;  // null: nothing is watched
  ParameterAverage* average_;      // null: there is none
  int64_t start_ = 0;
  bool changes_scaler_ = false;  // against the snapshot, by the dtype
  double seconds_ = 0, evaluation_seconds_ = 0;
  nlohmann::json history_ = nlohmann::json::array(), evaluations_ = nlohmann::json::array();
};

}  // namespace rw
