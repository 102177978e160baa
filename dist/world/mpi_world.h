// The ranks of an MPI library.
#pragma once

#include "communicator.h"

namespace rw {

// MPI_COMM_WORLD. The first call loads and initialises the library, and it is finalised when the
// program ends. RankError if this build or this machine has none.
Communicator& mpi_world();
// The MPI library of this build and this machine, in words: "Open MPI v4.1.4", or "none: ...".
std::string mpi_library();

}  // namespace rw
