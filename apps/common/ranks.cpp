#include "apps/common/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "rewind/backends/open.h"
#include "rewind/core/base/hash.h"
#include "rewind/core/base/interrupt.h"

namespace rw {

namespace {

uint64_t hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::vector<char> part(size_t{1} << 20);
  uint64_t hash = fnv1a_start;
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0) {
    const auto count = static_cast<size_t>(file.gcount());
    hash = fnv1a(hash, fnv1a(std::as_bytes(std::span(part).first(count))));
  }
  return hash;
}

}  // namespace

uint32_t shared_out(uint32_t wanted) {
  const auto ranks = static_cast<uint32_t>(rank_count());
  const uint32_t shared = (wanted + ranks - 1) / ranks * ranks;
  if (shared != wanted && is_first_rank())
    fmt::print(stderr, "note: {} ranks share out the steps of an update: --accumulate {}, not {}\n",
               ranks, shared, wanted);
  return shared;
}

uint32_t own_share(uint32_t accumulate) {
  return std::max<uint32_t>(1, accumulate / static_cast<uint32_t>(rank_count()));
}

std::unique_ptr<DataParallel> share_updates(Optimizer& optimizer, bool exact_batch_norm) {
  if (rank_count() == 1) return nullptr;
  auto* windows = dynamic_cast<Accumulate*>(&optimizer);
  check(windows, "options",
        "updates inside backward leave no gradients for {} ranks to add up: no --fused-update",
        rank_count());
  return std::make_unique<DataParallel>(*windows, world(),
                                        DataParallelOptions{.exact_batch_norm = exact_batch_norm});
}

std::string of_ranks() {
  return rank_count() == 1 ? "" : fmt::format(", {} ranks of {}", rank_count(), world().str());
}

void check_ranks_alike(const std::string& settings) {
  if (rank_count() == 1) return;
  check_alike(world(), {{"the program's file", fmt::format("{:016x}", hash_of_program())},
                        {"the settings", settings}});
}

int signal_of_ranks() {
  return std::ranges::max(gather(world(), InterruptScope::signal()));
}

std::string device_of_rank(const std::string& device) {
  std::string name = device;
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
