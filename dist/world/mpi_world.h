// The ranks of an MPI library.
#pragma once

#include "communicator.h"

namespace rw {

// MPI_COMM_WORLD. The library is loaded and initialised by the first call, and finalised when the
// program ends. RankError where this build or this machine has none.
Communicator& mpi_world();
// What this build and this machine have of MPI, in words: "Open MPI v4.1.4", or "none: ...".
std::string mpi_library();

}  // namespace rw
