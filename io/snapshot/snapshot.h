// Training snapshots: everything that a run needs to resume as if it had never stopped.
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

// The parts of a training run that a snapshot holds, by reference: the model, the optimizer, and so
// on. Parameters, buffers, the optimizer's state with loss scale and counts, and the generator's
// seed and position continue bit for bit.
struct TrainingState {
  Module& model;
  Optimizer& optimizer;
  Generator& generator = default_generator();
  StateDict extra = {};  // an average of the parameters, for example
  // Whether to load parameters of another dtype, too: the f32 values of all (masters, if they have
  // 16 bits) and the optimizer's states keep their bits, and the loss scale starts afresh.
  bool change_dtype = false;
  // Names the values that nothing trains where they come from elsewhere, as the base of adapters
  // does: other values have another text (DecoderFiles::fingerprint()). Parameters that collect no
  // gradients and weights in blocks are not saved then, and a snapshot of another base is
  // refused. Empty: everything is saved.
  std::string base = {};
};

// The ranks that train together and save as one (dist/); by default the only process. All make the
// same calls and see the same folder. If one fails, all throw.
struct SnapshotRanks {
  int rank = 0, ranks = 1;  // this one, of how many
  // Gathers a text from each rank, by rank: gather_texts().
  std::function<std::vector<std::string>(const std::string&)> gather = {};
};

// Writes one snapshot as a safetensors file with checksums, whole or not at all. If the optimizer's
// states are sharded, every rank but the first writes a part beside it, PATH.ID.part-1-of-3, with
// what it alone keeps; the file is their index, and is written when they are safely stored. Throws
// FileError, and ValueError for a position that is negative or not UTF-8.
void save_snapshot(const std::filesystem::path& path, const TrainingState& state,
                   const TrainingPosition& position, const SnapshotRanks& ranks = {});
// Fills `state` with what this rank keeps, whoever saved it, a process or any number of ranks. The
// model and the optimizer must be built like those that were saved, except for the dtype if the
// state says so. Everything is checked before anything changes: FileError.
TrainingPosition load_snapshot(const std::filesystem::path& path, const TrainingState& state);

// The snapshot that SnapshotDirectory::load_latest() loaded.
struct LoadedSnapshot {
  TrainingPosition position;   // where the run goes on
  std::filesystem::path file;  // the one that was loaded
  // The faults of newer snapshots that were passed over, newest first. Show them: the steps since
  // `position` are done again.
  std::vector<std::string> damaged = {};
};

class SnapshotFiles;

// A folder of snapshots, step-STEP.safetensors, with their parts. The first load or save locks it:
// FileError names the process that holds the lock. Throws FileError.
class SnapshotDirectory {
 public:
  // `keep` is the number of newest snapshots that stay, at least 1.
  explicit SnapshotDirectory(std::filesystem::path directory, int keep = 2,
                             SnapshotRanks ranks = {});

  // Saves, then removes the oldest snapshots, damaged ones that were passed over, and what a killed
  // writer left. Snapshots of later steps belong to another run: FileError, and they stay.
  void save(const TrainingState& state, const TrainingPosition& position);

  // Loads the newest snapshot that the first rank finds whole; returns nothing if the folder has
  // none at all. FileError if it has some and all are damaged: nobody wants to start from zero over
  // what might be rescued by hand. `accept` sees the position before anything changes, and throws
  // to refuse it.
  using Accept = std::function<void(const TrainingPosition&)>;
  [[nodiscard]] std::optional<LoadedSnapshot> load_latest(const TrainingState& state,
                                                          const Accept& accept = {});
  // Removes all snapshots, to start from zero.
  void clear();

  // The files whose header and size are right, oldest first; load_latest() also compares checksums.
  std::vector<std::filesystem::path> list() const;

 private:
  // On the first rank: takes the lock, and takes it again if the folder was removed meanwhile.
  void lock();
  std::optional<SnapshotFiles> find_latest(std::vector<std::string>& damaged);
  // Removes the snapshots before `whole`, which is known to be so, but those that are kept, and
  // what a killed writer left.
  void discard_old(const std::filesystem::path& whole);

  std::filesystem::path directory_;
  int keep_;
  SnapshotRanks ranks_;
  std::vector<std::filesystem::path> passed_over_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace rw
