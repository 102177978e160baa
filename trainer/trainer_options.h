// What training programs let their users choose, whatever they train.
#pragma once

#include <string>

#include "loop/average.h"
#include "program/learning_rate.h"
#include "program/numerics.h"
#include "program/planning.h"
#include "program/ranks.h"

namespace rw {

// How a program calls things in the texts of its options.
struct TrainerWords {
  std::string samples = "samples";                    // what a batch has
  std::string batch = {};                             // of --batch, besides
  std::string random = "weights, order and dropout";  // what --seed is of
  std::string decayed = "matrices";                   // what --weight-decay is of
  std::vector<std::string> segments = {};  // what --checkpoint recomputes at a time; empty: nothing
  bool joins_segments = false;             // it has --checkpoint-every and --host-boundaries
};

// The options of a training program; those of one program derive from them.
struct TrainerOptions {
  CLI::App* command = nullptr;    // whose options these are; null: none's
  DeviceOptions device = {};      // where it computes
  PlanningOptions planning = {};  // what it may take
  NumericsOptions numerics = {};  // loss scaling
  AverageOptions average = {};    // of the weights
  RankOptions ranks = {};         // that train together
  LearningRateOptions lr = {};    // the highest one
  int64_t batch = 32;             // samples per step
  int64_t epochs = 1, steps = 0;  // of the training; steps count where there are any
  uint32_t accumulate = 1;        // steps per update of the weights, of all ranks
  double weight_decay = 0.01;     // decoupled, or of an L2 norm, as the optimizer has it
  uint64_t seed = 1;              // of all that is random
  std::string resume = {};        // folder of snapshots; empty: none
  int64_t snapshot_every = 100;   // steps
  bool restart = false;           // forget the snapshots that there are
  bool change_dtype = false;      // go on from one of another dtype
  bool quiet = false;             // print results only

  // Options of recomputation, as in StepSettings, where TrainerWords::segments has some.
  std::string checkpoint = StepSettings().checkpoint;
  int checkpoint_every = 1;
  bool host_boundaries = false;

  // All options but --epochs and --steps, which programs explain.
  void add_to(CLI::App& app, const TrainerWords& words = {});
  // Of these, all but the learning rate's, --weight-decay and those of snapshots: for a program
  // that has rules and loops of its own.
  void add_common_to(CLI::App& app, const TrainerWords& words = {});
  void check_numbers() const;  // ValueError
  // The highest learning rate, for the samples of an update.
  double rate() const { return lr.rate(batch, accumulate); }
  // ", learning rate 0.4 (0.1 for 128 ...": what was made of --lr; or empty.
  std::string rate_text() const { return lr.str(batch, accumulate); }
  // The settings on this rank.
  StepSettings settings() const;

 private:
  void add_recomputation_to(CLI::App& app, const TrainerWords& words);
};

}  // namespace rw
