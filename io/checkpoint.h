// Training checkpoints: everything that a run needs to go on as if it had never stopped.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "io/model.h"
#include "optim/optimizer.h"

namespace rw {

// Where in its work a training loop is. The checkpoint keeps it as it is given.
struct TrainingPosition {
  int64_t step = 0;              // names the file
  int64_t epoch = 0, index = 0;  // the next batch
  std::string json = "{}";       // what else the loop wants to know again
};

// What a checkpoint holds of a training run, by reference. Parameters, buffers, the optimizer's
// state with loss scale and counts, and the generator's seed and position go on bit for bit.
struct TrainingState {
  Module& model;
  Optimizer& optimizer;
  Generator& generator = default_generator();
  StateDict extra = {};  // an average of the parameters, for example
};

// One checkpoint as one safetensors file, in place whole or not at all. Throws FileError.
void save_checkpoint(const std::filesystem::path& path, const TrainingState& state,
                     const TrainingPosition& position);
// Fills `state`; the model and the optimizer must be built as those that were saved.
TrainingPosition load_checkpoint(const std::filesystem::path& path, const TrainingState& state);

// A folder of checkpoints, step-STEP.safetensors. One process at a time writes to it.
class CheckpointDirectory {
 public:
  // `keep`: how many of the newest stay, at least 1.
  explicit CheckpointDirectory(std::filesystem::path directory, int keep = 2);

  // Saves, then removes the oldest ones and what a killed writer left.
  void save(const TrainingState& state, const TrainingPosition& position) const;
  // Loads the newest one; nothing if there is none.
  std::optional<TrainingPosition> load_latest(const TrainingState& state) const;

  // Complete checkpoints, oldest first: files whose header and size are right.
  std::vector<std::filesystem::path> list() const;

 private:
  std::filesystem::path directory_;
  int keep_;
};

}  // namespace rw
