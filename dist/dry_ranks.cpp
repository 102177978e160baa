#include "rewind/dist/dry_ranks.h"

#include <algorithm>

#include "rewind/core/base/error.h"

namespace rw {

DryRanks::DryRanks(int rank, int size) : rank_(rank), size_(size) {
  check(size > 0 && rank >= 0 && rank < size, "ranks", "a rank must be in [0, {}), got {}", size,
        rank);
}

void DryRanks::all_to_all(std::span<const std::byte> to, std::span<std::byte> from) {
  std::ranges::copy(to, from.begin());
}

void DryRanks::all_gather(std::span<const std::byte> own, std::span<std::byte> all) {
  for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank)
    std::ranges::copy(own, all.subspan(rank * own.size()).begin());
}

void DryRanks::abort(int status) {
  fail<RankError>("ranks", "a rank of a dry run ended, with status {}", status);
}

}  // namespace rw
