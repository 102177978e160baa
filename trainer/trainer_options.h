// The options that all training programs have in common.
#pragma once

#include <string>

#include "loop/average.h"
#include "program/learning_rate.h"
#include "program/numerics.h"
#include "program/planning.h"
#include "program/ranks.h"

namespace rw {

// The options of a training program, from which those of a particular program derive.
struct TrainerOptions {
  CLI::App* command = nullptr;    // the command that has these options; null: none
  DeviceOptions device = {};      // the device to compute on
  PlanningOptions planning = {};  // the memory that the run may take
  NumericsOptions numerics = {};  // loss scaling
  AverageOptions average = {};    // an average of the weights
  RankOptions ranks = {};         // processes that train together
  LearningRateOptions lr = {};    // the highest learning rate
  TrainingRecipe chosen = {};     // for all that options leave open: rw::recipe() of the work
  int64_t batch = 32;             // samples per step
  int64_t epochs = 1, steps = 0;  // of training; if `steps` is positive, it counts
  uint32_t accumulate = 1;        // steps per update of the weights, over all ranks
  double weight_decay = 0.01;     // decoupled, or that of an L2 norm, as the optimizer has it
  uint64_t seed = 1;              // of all random numbers
  std::string resume = {};        // the folder of snapshots; empty: there are none
  int64_t snapshot_every = 100;   // steps
  bool restart = false;           // remove existing snapshots
  bool change_dtype = false;      // resume from a snapshot of another dtype
  bool allow_rise = false;        // continue where the loss exceeds its initial value by half
  bool quiet = false;             // print results only

  // The option of recomputation, as in StepSettings, if `segments` has any words.
  std::string checkpoint = StepSettings().checkpoint;
  int checkpoint_every = 1;
  bool host_boundaries = false;
  int64_t mlp_rows = 0;
  std::string offload = "none";  // as StepSettings
  int fused_update = 0;          // likewise
  double predicted_seconds = 0;  // of an update, by fit_memory(); 0: nobody predicted it

  // The properties of the program, which no option changes; the first ones are words of help texts.
  std::string samples = "samples";                    // the things that a batch consists of
  std::string batch_note = {};                        // more about --batch
  std::string random = "weights, order and dropout";  // the things to which --seed applies
  std::string decayed = "matrices";                   // those to which --weight-decay applies
  // Units that --checkpoint can recompute; empty: there is no such option.
  std::vector<std::string> segments = {};
  bool joins_segments = false;    // there are --checkpoint-every and --host-boundaries
  bool divides_mlps = false;      // there is --mlp-rows
  bool has_frozen_file = false;   // weights may stay in their file: --offload file
  std::string frozen_base = {};   // snapshots leave it out: TrainingState::base
  std::string unit = {};          // of the rate; empty: samples
  int64_t per_sample = 1;         // units per sample: tokens of a sequence
  bool has_accuracy = true;       // the meter counts hits, too
  std::string figures = "test_";  // the prefix of the names of an evaluation's figures
  bool in_step = false;           // all ranks take the same number of steps per epoch

  // Adds all options but --epochs and --steps, which programs explain themselves.
  void add_to(CLI::App& app);
  // Adds all of these but those of the learning rate, --weight-decay and those of snapshots, for a
  // program that has rules and loops of its own.
  void add_common_to(CLI::App& app);
  void check_numbers() const;  // throws ValueError
  // Returns the highest learning rate, for the samples of an update.
  double rate() const { return lr.rate(batch, accumulate, chosen); }
  // Says how --lr was scaled: ", learning rate 0.4 (0.1 for 128 ...", or nothing.
  std::string rate_text() const { return lr.str(batch, accumulate); }
  // Says which rate and schedule the run has, and why: "learning rate 2e-05, that of ...".
  std::string chosen_text() const { return lr.chosen_text(rate(), chosen); }
  // Returns the settings on this rank.
  StepSettings settings() const;
  // Where --memory was given, chooses the quickest settings of the program that fit on the default
  // device, and says which; these options then say the same. OutOfMemory if none fit, with the
  // least that the program needs. Call it when the program is complete, before run_planned().
  void fit_memory(TrainingProgram& program);

 private:
  void add_recomputation_to(CLI::App& app);
};

}  // namespace rw
