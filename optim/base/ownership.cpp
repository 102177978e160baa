#include "optim/base/ownership.h"

#include <algorithm>
#include <bit>

namespace rw {

int64_t row_elements(int64_t total) {
  // Enough rows to fill a GPU with those of one parameter, few enough for the one workgroup that
  // adds up their sums.
  constexpr int64_t most_rows = 16384, smallest = 4096, largest = int64_t{1} << 18;
  const auto wanted = static_cast<uint64_t>((total + most_rows - 1) / most_rows);
  return std::clamp(static_cast<int64_t>(std::bit_ceil(wanted)), smallest, largest);
}

Ownership::Ownership(const std::vector<Parameter>& line, int ranks) : begins_{0} {
  for (const Parameter& parameter : line) begins_.push_back(begins_.back() + parameter.size);
  const int64_t total = begins_.back(), row = row_elements(total);
  for (int64_t rank = 0; rank <= ranks; ++rank)
    cuts_.push_back(cut(line, total / ranks * rank + total % ranks * rank / ranks, row));
}

// The place nearest to `ideal` where the line may be cut.
int64_t Ownership::cut(const std::vector<Parameter>& line, int64_t ideal, int64_t row) const {
  const auto next = std::ranges::upper_bound(begins_, ideal);
  if (next == begins_.end()) return begins_.back();
  const auto parameter = static_cast<size_t>(next - begins_.begin()) - 1;
  const int64_t begin = begins_[parameter], size = *next - begin, at = ideal - begin;
  const int64_t low = line[parameter].is_divisible ? at / row * row : 0;
  const int64_t high = line[parameter].is_divisible ? std::min(low + row, size) : size;
  return begin + (at - low <= high - at ? low : high);
}

ElementRange Ownership::part(size_t parameter, int rank) const {
  const int64_t begin = begins_[parameter];
  const auto at = [&](int place) {
    return std::clamp<int64_t>(cuts_[static_cast<size_t>(place)] - begin, 0, size(parameter));
  };
  return {at(rank), at(rank + 1) - at(rank)};
}

int Ownership::owner(size_t parameter) const {
  const auto first = cuts_.begin() + 1;
  return static_cast<int>(std::upper_bound(first, cuts_.end() - 1, begins_[parameter]) - first);
}

}  // namespace rw
