#include "dist/world/dry_ranks.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace rw {

namespace {

// Longer messages hold values of tensors, which a dry device does not have: their targets stay
// unchanged.
constexpr size_t most_copied = size_t{64} << 10;

}  // namespace

DryRanks::DryRanks(int rank, int size) : rank_(rank), size_(size) {
  check(size > 0 && rank >= 0 && rank < size, "ranks", "a rank must be in [0, {}), got {}", size,
        rank);
}

void DryRanks::all_to_all(std::span<const std::byte> to, std::span<const size_t> sizes,
                          std::span<std::byte> from) {
  if (to.size() > most_copied) return;
  const auto own = static_cast<size_t>(rank_);
  const size_t begin = std::accumulate(sizes.begin(), sizes.begin() + rank_, size_t{0});
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    std::ranges::copy(to.subspan(begin, sizes[own]), from.subspan(rank * sizes[own]).begin());
}

// Bytes beyond the size of its own part stay unchanged.
void DryRanks::all_gather(std::span<const std::byte> own, std::span<const size_t> sizes,
                          std::span<std::byte> all) {
  if (all.size() > most_copied) return;
  for (const size_t size : sizes) {
    std::ranges::copy(own.first(std::min(size, own.size())), all.begin());
    all = all.subspan(size);
  }
}

void DryRanks::abort(int status) {
  fail<RankError>("ranks", "a rank of a dry run ended, with status {}", status);
}

}  // namespace rw
