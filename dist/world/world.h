// The ranks of this run.
#pragma once

#include "communicator.h"

namespace rw {

// The ranks that mpirun started, of which this process is one; a process that it did not start is
// the only one. The same object in every call. RankError without an MPI library, and where mpirun
// is that of another one.
Communicator& world();
// Whether mpirun, of Open MPI, MPICH or their kin, started this process with others.
bool is_started_by_mpi();

}  // namespace rw
