#include "dist/world/world.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"
#include "dist/world/mpi_world.h"

namespace rw {

namespace {

// A single process.
class Alone : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string str() const override { return "one process"; }
  void all_to_all(std::span<const std::byte> to, std::span<const size_t>,
                  std::span<std::byte> from) override {
    std::ranges::copy(to, from.begin());
  }
  void all_gather(std::span<const std::byte> own, std::span<const size_t>,
                  std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
  }
  void broadcast(std::span<std::byte>, int) override {}
  [[noreturn]] void abort(int status) override { std::_Exit(status); }
};

// The variables of Open MPI's mpirun, and of Hydra, the launcher of MPICH and Intel MPI.
int started_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* text = std::getenv(name)) return std::max(1, std::atoi(text));
  return 1;
}

}  // namespace

bool is_started_by_mpi() {
  return started_ranks() > 1;
}

Communicator& world() {
  static Alone alone;
  if (!is_started_by_mpi()) return alone;
  Communicator& mpi = mpi_world();
  check<RankError>(mpi.size() == started_ranks(), "mpi",
                   "mpirun must be that of {}, got one that started {} ranks, of which it knows {}",
                   mpi.str(), started_ranks(), mpi.size());
  return mpi;
}

}  // namespace rw
