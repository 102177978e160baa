// Builds without MPI use this file instead of dist/world/mpi_world.cpp.
#include "core/base/error.h"
#include "dist/world/mpi_world.h"

namespace rw {

Communicator& mpi_world() {
  fail<RankError>("mpi",
                  "mpirun started several ranks, which needs a build with MPI, got one without: "
                  "install libopenmpi-dev or libmpich-dev, and build again by ./rewind build, or "
                  "configured with -Dmpi=enabled");
}

std::string mpi_library() {
  return "none: this build has no MPI";
}

}  // namespace rw
