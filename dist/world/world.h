// The ranks of this run.
#pragma once

#include "communicator.h"

namespace rw {

// The ranks that mpirun started, including this process; a process that mpirun did not start is the
// only one. Every call returns the same object. RankError without an MPI library, and if mpirun
// belongs to another one.
Communicator& world();
// Whether mpirun, of Open MPI, MPICH or a relative, started this process with others.
bool is_started_by_mpi();

}  // namespace rw
