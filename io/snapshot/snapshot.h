// Training snapshots: everything that a run needs to go on as if it had never stopped.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../core/base/rng.h"
#include "../../core/files/file.h"
#include "../../optim/base/optimizer.h"
#include "../models/model.h"
#include "training_position.h"

namespace rw {

// What a snapshot holds of a training run, by reference: the model, the optimizer, and so on.
// Parameters, buffers, the optimizer's state with loss scale and counts, and the generator's seed
// and position go on bit for bit.
struct TrainingState {
  Module& model;
  Optimizer& optimizer;
  Generator& generator = default_generator();
  StateDict extra = {};  // an average of the parameters, for example
  // Load parameters of another dtype, too: the f32 values of all (masters, where they are of 16
  // bits) and the optimizer's states stay to the bit, and the loss scale begins afresh.
  bool change_dtype = false;
};

// The ranks that train together and save as one (dist/); at first the one process that there is.
// All make the same calls, and see the same folder. Where one fails, all throw.
struct SnapshotRanks {
  int rank = 0, ranks = 1;  // this one, of how many
  // What all of them give, by rank: gather_texts().
  std::function<std::vector<std::string>(const std::string&)> gather = {};
};

// One snapshot as a safetensors file with checksums, in place whole or not at all. Of an optimizer
// whose states are sharded, every other rank than the first writes a part beside it,
// PATH.ID.part-1-of-3, with what it alone keeps; the file is their index, and written when they are
// safely stored. Throws FileError, ValueError for a position that is negative or not UTF-8.
void save_snapshot(const std::filesystem::path& path, const TrainingState& state,
                   const TrainingPosition& position, const SnapshotRanks& ranks = {});
// Fills `state`, with what is kept here: whoever saved, a process or any number of ranks, loads as
// well as any other. The model and the optimizer must be built as those that were saved, but for
// the dtype where the state says so. Everything is checked before anything is changed: FileError.
TrainingPosition load_snapshot(const std::filesystem::path& path, const TrainingState& state);

// What SnapshotDirectory::load_latest() took.
struct LoadedSnapshot {
  TrainingPosition position;   // where the run goes on
  std::filesystem::path file;  // that was loaded
  // What is wrong with the newer ones that were passed over, newest first. To be shown: the steps
  // since `position` are done again.
  std::vector<std::string> damaged = {};
};

class SnapshotFiles;

// A folder of snapshots, step-STEP.safetensors, with their parts. From the first load or save on it
// is locked: FileError names the process that has it. Throws FileError.
class SnapshotDirectory {
 public:
  // `keep`: how many of the newest stay, at least 1.
  explicit SnapshotDirectory(std::filesystem::path directory, int keep = 2,
                             SnapshotRanks ranks = {});

  // Saves, then removes the oldest ones, damaged ones that were passed over, and what a killed
  // writer left. Snapshots of later steps are another run's: FileError, they stay.
  void save(const TrainingState& state, const TrainingPosition& position);

  // Loads the newest one that the first rank finds whole; nothing if the folder has none at all.
  // FileError if it has some and all are damaged: nobody wants to start from zero over what may be
  // saved by hand. `accept` sees the position before anything is changed, and throws if it is not
  // to go on there.
  using Accept = std::function<void(const TrainingPosition&)>;
  [[nodiscard]] std::optional<LoadedSnapshot> load_latest(const TrainingState& state,
                                                          const Accept& accept = {});
  // Removes all snapshots, for a start from zero.
  void clear();

  // Files whose header and size are right, oldest first; load_latest() compares checksums, too.
  std::vector<std::filesystem::path> list() const;

 private:
  void lock();  // on the first rank
  std::optional<SnapshotFiles> find_latest(std::vector<std::string>& damaged);
  void discard_old();  // beyond those that are kept, and what a killed writer left

  std::filesystem::path directory_;
  int keep_;
  SnapshotRanks ranks_;
  std::vector<std::filesystem::path> passed_over_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace rw
