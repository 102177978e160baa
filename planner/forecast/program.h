// A training program as the planner sees it: the settings of its steps, and how to take a step
// without data. Real runs and dry runs share all of this, so the forecast is what happens.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../core/autograd/boundaries.h"
#include "../../core/autograd/checkpoint.h"
#include "../follow/follower.h"
#include "../follow/memory_budget.h"

namespace rw {

// How the steps of a program use memory.
struct StepSettings {
  DType dtype = DType::f32;  // of activations and products: the dtype that steps give to Autocast
  int64_t batch = 1;         // samples per step
  uint32_t accumulate = 1;   // steps per update
  // The segments of the model: none, block (as BlockCheckpoints), or another word that the model
  // knows.
  std::string checkpoint = checkpoints_blocks() ? "block" : "none";

  int checkpoint_every = 1;      // blocks per segment, where it can that
  bool host_boundaries = false;  // between segments (HostBoundaries)
  int64_t mlp_rows = 0;  // tokens that an MLP takes at a time, each time in a segment; 0: all
  std::shared_ptr<const Plan> recompute = nullptr;  // instead of the model's segments
  uint64_t budget = 0;           // most bytes of blocks, 0: as many as the device may have
  int64_t evaluation_batch = 0;  // samples at a time, 0: as in `batch`
  int rank = 0, ranks = 1;       // which one, of those that train together (dist/step_ranks.h)
  // The things that ranks keep in parts, and those that lie in host memory or in a file: none, or
  // another word of sharding_words() and offloading_words() in dist/step_ranks.h.
  std::string shard = "none", offload = "none";
  // Updates of each weight inside backward, in 1 or 2 passes (FusedBackward), of one step per
  // update; 0: after it.
  int fused_update = 0;
  bool states_in_8_bits = false;  // the optimizer's moments, where the program has them in f32
  int64_t length = 0;  // tokens per sample, where it has any; 0: as many as the program says

  // The same with all activations kept: no segments of the model, no recomputation and no budget.
  StepSettings plain() const;
  // The same with as many steps per update as there are kinds of steps: a first one, one between,
  // and a last one. More steps need no more memory.
  StepSettings shortened() const;

  // Whether parameters lie in host memory, and whether the host's processor updates what does.
  bool offloads_parameters() const { return offload.starts_with("parameters"); }
  bool updates_on_host() const { return offload.ends_with("+updates"); }

  // The tokens per sample, or the program's own.
  int64_t length_or(int64_t usual) const { return length ? length : usual; }

  bool operator==(const StepSettings&) const = default;
};

// Applies settings to this thread while it lives, except for those that steps read themselves
// (dtype, batch, accumulate).
class [[nodiscard]] SettingsScope {
 public:
  explicit SettingsScope(const StepSettings& settings);
  SettingsScope(const SettingsScope&) = delete;
  SettingsScope& operator=(const SettingsScope&) = delete;

  // Empty, or how a forward pass differed from the one that the recomputation was planned for.
  std::string difference() const { return recompute_ ? recompute_->difference() : ""; }

 private:
  std::optional<MemoryBudget> budget_;
  std::optional<PlanFollower> recompute_;
  BlockCheckpoints blocks_;
  HostBoundaries boundaries_;
};

// The sizes of a batch without data.
struct BatchShape {
  int64_t rows = 0;    // samples, 0: as many as the settings say
  int64_t length = 0;  // tokens per sample, where it has any; 0: as many as the program's longest

  // The number of rows, or the usual one.
  int64_t rows_or(int64_t usual) const { return rows ? rows : usual; }

  bool operator==(const BatchShape&) const = default;
};

// Returns, for the size of full batches, the sizes of the batches that a program takes.
using BatchShapes = std::function<std::vector<BatchShape>(int64_t batch)>;
BatchShapes batches_of(int64_t samples);  // of so many samples in order

// The bytes that steps read of files, as FileSource does.
struct FileReads {
  uint64_t bytes = 0;    // of weights, so far
  uint64_t buffers = 0;  // host memory that they take on their way
};

// A model with its optimizer and everything else that outlives a step. The constructor and
// dry_step() allocate what training does.
class TrainingSteps {
 public:
  virtual ~TrainingSteps() = default;
  // Takes one step of training, or one batch of an evaluation, from shapes alone (empty(shape)),
  // and calls Device::end_step() after it. An evaluation is NoGrad.
  virtual void dry_step(const BatchShape& shape) = 0;
  virtual void dry_evaluation(const BatchShape&) {}

  virtual FileReads file_reads() const { return {}; }  // of frozen weights that stay in files
  virtual void flush() {}  // updates from a window of Accumulate that is not full
  // Allocates what loading or saving weights takes (io/models/model.h: copy_as_file), which only
  // the first of several ranks does.
  virtual void copy_weights() {}
  virtual void save_weights(bool is_first) {
    if (is_first) copy_weights();
  }
};
// Builds a model for these settings on the default device.
using MakeSteps = std::function<std::unique_ptr<TrainingSteps>(const StepSettings&)>;

// Makes a program that takes only equal steps: `make` builds a model for these settings and
// returns what takes a step, ended by an optimizer or end_step().
//   training_steps([](const StepSettings& s) {
//     auto model = std::make_shared<Net>();
//     auto adam = std::make_shared<Adam>(model->parameters());
//     return [=] { train_on(*model, *adam, empty({s.batch, 784}), empty({s.batch},
//     DType::i32)); };
//   })
MakeSteps training_steps(std::function<std::function<void()>(const StepSettings&)> make);

// A program and the settings that its user asked for.
struct TrainingProgram {
  std::string title = "training";   // "resnet20, 32x32 images, 10 classes"
  std::string samples = "samples";  // "images"
  MakeSteps make;                   // builds the model, as often as there is something to predict
  StepSettings settings = {};       // as its user asked for them

  // The work besides steps of full batches, since it takes memory, too.
  bool trains = true;                 // false: it only evaluates
  bool loads = false, saves = false;  // weights, from a file and to one; of ranks, the first saves
  // The batches of training, beginning with the first one, and those of the evaluation. If not set,
  // all are full.
  BatchShapes steps = {}, evaluation = {};

  // The file of frozen weights that may stay there (the word "file" for StepSettings::offload), or
  // empty if there is none yet. Nothing: no weights may.
  std::optional<std::string> frozen_file = {};

  // The batch's samples have a part in each other's gradients, as under BatchNorm.
  bool has_batch_statistics = false;
  double estimator_states = 4;  // floats per parameter in the usual estimate: SGD 2, Adam 4
  // The words for ways to save memory, as a user can choose them: segments of each block, with the
  // values between them in host memory, the tokens that MLPs take at a time ({}, "mlp-rows"; a
  // program that obeys it adds the word), activations in f16, optimizer states that ranks shard,
  // a word of offloading_words() ({}), the passes of fused updates ({}), moments in 8 bits, a
  // budget ({} stands for the bytes), a smaller batch accumulated to the same update by all ranks
  // together ({} and {} stand for both), the tokens per sample ({}), and ways that change updates
  // ({}). What has no words cannot be chosen.
  std::map<std::string, std::string> words = {
      {"block", "checkpoint block"},  {"boundaries", "host boundaries"},
      {"f16", "dtype f16"},           {"shard", "shard states"},
      {"offload", "offload {}"},      {"fused", "fused update {}"},
      {"budget", "memory budget {}"}, {"batch", "batch {} accumulate {}"},
      {"length", "length {}"},        {"allow", "allow {}"}};
  // The most tokens per sample that the model has positions for; 0: samples have no tokens.
  int64_t longest = 0;
  // The most samples that are evaluated at a time, if that takes no more memory than everything
  // else.
  int64_t most_evaluated = 0;  // 0: as in training

  // The differences between two settings in these words. `budget` is that with which the plan of
  // `to` is found again.
  std::string changes(const StepSettings& from, const StepSettings& to, uint64_t budget) const;
};

}  // namespace rw
