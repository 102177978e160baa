// Shows which MPI there is, and whether the ranks that mpirun starts reach each other and their
// devices.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <unistd.h>

#include "backends/open.h"
#include "dist/world/mpi_world.h"
#include "trainer/program/program.h"
#include "trainer/program/ranks.h"
#include "trainer/program/shared_options.h"

using namespace rw;

namespace {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// The device that training with --device would use on this rank.
std::string device_text(const std::string& wanted) {
  try {
    return open_backend(device_of_rank(wanted))->info().name;
  } catch (const DeviceError& error) {
    return fmt::format("no device: {}", error.what());
  }
}

// The mean of the seconds of several calls of body().
template <class F>
double seconds_of(const F& body) {
  body();
  const auto start = std::chrono::steady_clock::now();
  constexpr int times = 10;
  for (int i = 0; i < times; ++i) body();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / times;
}

void check_messages(Communicator& ranks) {
  std::vector<int> numbers = gather(ranks, ranks.rank());
  for (int rank = 0; rank < ranks.size(); ++rank)
    check<RankError>(numbers[static_cast<size_t>(rank)] == rank, "mpi",
                     "rank {} must send its number, got {}", rank,
                     numbers[static_cast<size_t>(rank)]);
  const auto count = static_cast<size_t>(ranks.size());
  std::vector<std::byte> to((size_t{16} << 20) / count * count), from(to.size());
  const double small = seconds_of([&] { gather(ranks, 1); });
  const double large = seconds_of([&] { ranks.all_to_all(to, from); });
  fmt::print("messages: {:.0f} us for a number of each, {:.0f} MB/s of each rank to all\n",
             1e6 * small, static_cast<double>(to.size()) / large / 1e6);
}

void run(const std::string& device) {
  fmt::print("MPI library: {}\n", mpi_library());
  if (!is_started_by_mpi()) {
    fmt::print("started without mpirun: one process on {}\n", device_text(device));
    return;
  }
  Communicator& ranks = world();
  const std::string own =
      fmt::format("rank {} of {} on {}, number {} of {} there: {}", ranks.rank(), ranks.size(),
                  host_name(), ranks.local_rank(), ranks.local_size(), device_text(device));
  for (const std::string& line : gather_texts(ranks, own)) fmt::print("{}\n", line);
  check_messages(ranks);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Prints which MPI is installed, and whether ranks reach each other and their devices.");
  std::string device = "auto";
  shared_option(app, "--device", device)->capture_default_str();
  return run_program(app, argc, argv, [&] { run(device); });
}
