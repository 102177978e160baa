// The files of a snapshot (io/snapshot/snapshot.h): one, or an index with parts beside it.
#pragma once

#include <filesystem>
#include <list>
#include <string>

#include "../../core/base/rng.h"
#include "../models/model.h"
#include "training_position.h"

namespace rw {

// A snapshot of several ranks is an index, by rank 0, and a part of each other rank. Files that
// were written together have one id, which no other writing has: so an index never takes the parts
// of another one for its own, and writing a new snapshot in its place leaves it whole until the
// rename.
struct SnapshotId {
  std::string text;  // 16 hexadecimal digits; empty: there are no parts
  int parts = 0;     // beside the index

  static SnapshotId drawn(int parts);
  std::filesystem::path path_of(const std::filesystem::path& index, int part) const;  // from 1
};

// Each file is in place whole or not at all: FileError.
void write_snapshot_part(const std::filesystem::path& index, const SnapshotId& id, int part,
                         const StateDict& tensors);
void write_snapshot_index(const std::filesystem::path& index, const SnapshotId& id,
                          const StateDict& tensors, const Generator& generator,
                          const TrainingPosition& position, const std::string& base = {});

// A snapshot for reading. FileError unless it has all its parts and every byte is what was written.
class SnapshotFiles {
 public:
  explicit SnapshotFiles(const std::filesystem::path& index);

  const std::list<SafetensorsFile>& files() const { return files_; }  // the index is the first
  const TrainingPosition& position() const { return position_; }
  const std::string& base() const { return base_; }  // TrainingState's
  void restore(Generator& generator) const;

 private:
  std::list<SafetensorsFile> files_;
  TrainingPosition position_;
  std::string base_;
  uint64_t rng_seed_ = 0, rng_position_ = 0;
};

// Whether headers and sizes are right, including those of the parts; it does not look at contents.
bool is_complete_snapshot(const std::filesystem::path& index);

// The index to which the name of a part belongs; empty if it is not one.
std::filesystem::path index_of_part(const std::filesystem::path& file);
// Whether the current index does not need this part of its. An index that does not exist needs
// none; if it cannot be read, nobody knows.
bool is_orphan(const std::filesystem::path& part);

}  // namespace rw
