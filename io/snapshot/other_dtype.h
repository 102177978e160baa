// Resumes a snapshot with parameters of another dtype (io/snapshot/snapshot.h): f32 values go to
// f32 values, from masters, or from parameters that had none, to what updates change.
#pragma once

#include <set>
#include <string>

#include "../../optim/base/optimizer.h"
#include "snapshot_files.h"

namespace rw {

// Whether the saved parameters have another dtype than the model's: FileError with the first one
// that has, unless it `may_change`.
bool has_other_dtype(const SnapshotFiles& snapshot, const Module& model, bool may_change);

// Adds what must be read of such a snapshot: under the names of the optimizer's parameters, tensors
// for their f32 values. Names in the files that nothing reads then go to `ignored`. FileError if
// ranks keep masters in parts.
void read_masters(const SnapshotFiles& snapshot, const Module& model, const Optimizer& optimizer,
                  StateDict& tensors, std::set<std::string>& ignored);
// Called when they are read: rounds them into 16-bit parameters.
void round_masters(const Optimizer& optimizer);

}  // namespace rw
