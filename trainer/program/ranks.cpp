#include "trainer/program/ranks.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>

#include "backends/open.h"
#include "core/base/interrupt.h"
#include "trainer/program/shared_options.h"

namespace rw {

void RankOptions::add_to(CLI::App& app) {
  shared_option(app, "--shard", shard)
      ->check(CLI::IsMember(sharding_words()))
      ->capture_default_str();
  app.add_option("--ranks", planned, "with --plan: plan for so many ranks, without mpirun")
      ->check(CLI::Range(1, 1024))
      ->needs("--plan");
}

void RankOptions::share_out(uint32_t& accumulate) {
  const auto ranks = static_cast<uint32_t>(count());
  const uint32_t wanted = accumulate;
  accumulate = (wanted + ranks - 1) / ranks * ranks;
  if (!is_first_rank()) return;
  if (accumulate != wanted)
    fmt::print(stderr, "note: {} ranks share the steps of an update: --accumulate {}, not {}\n",
               ranks, accumulate, wanted);
  if (ranks == 1 && shard != "none")
    fmt::print(stderr, "note: one rank keeps all: --shard {} is for several\n", shard);
}

StepSettings RankOptions::of_rank(StepSettings settings) const {
  settings.rank = planned ? 0 : world().rank();
  settings.ranks = count();
  settings.shard = shard;
  settings.accumulate = std::max<uint32_t>(1, settings.accumulate / static_cast<uint32_t>(count()));
  return settings;
}

BatchShapes own_batches_of(int64_t samples) {
  return [samples](int64_t batch) {
    const int64_t full = samples / batch, ranks = rank_count(), rank = world().rank();
    std::vector<BatchShape> shapes;
    if (rank < full) shapes.push_back({.rows = batch});
    if (samples % batch && full % ranks == rank) shapes.push_back({.rows = samples % batch});
    return shapes;
  };
}

void check_steps_of_ranks(const Optimizer& optimizer, int64_t steps) {
  const std::optional<Shard>& shard = optimizer.parameters().shard();
  check(!shard || shard->gathered_bytes == 0 || steps % shard->ranks == 0, "options",
        "with --shard parameters every rank takes the same number of steps: {} ranks must divide "
        "the steps, got {} (see {}--batch)",
        shard ? shard->ranks : 1, steps, has_option("--steps") ? "--steps, " : "");
}

std::string of_ranks() {
  return rank_count() == 1 ? "" : fmt::format(", {} ranks of {}", rank_count(), world().str());
}

int signal_of_ranks() {
  return std::ranges::max(gather(world(), InterruptScope::signal()));
}

std::string device_of_rank(const std::string& device) {
  std::string name = device == "auto" ? best_device() : device;
  const int rank = world().local_rank();
  if (const size_t at = name.find("%r"); at != std::string::npos)
    return name.replace(at, 2, std::to_string(rank));
  if (name != "vulkan" || world().local_size() == 1 || std::getenv("REWIND_DEVICE")) return name;
  std::vector<size_t> gpus;
  const std::vector<DeviceListing> all = list_devices();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].type.ends_with("GPU")) gpus.push_back(i);
  if (gpus.size() < 2) return name;
  return fmt::format("vulkan:{}", gpus[static_cast<size_t>(rank) % gpus.size()]);
}

}  // namespace rw
