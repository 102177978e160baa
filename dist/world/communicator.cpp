#include "dist/world/communicator.h"

#include <algorithm>

namespace rw {

void Communicator::all_to_all(std::span<const std::byte> to, std::span<std::byte> from) {
  const auto ranks = static_cast<size_t>(size());
  all_to_all(to, std::vector<size_t>(ranks, to.size() / ranks), from);
}

void Communicator::all_gather(std::span<const std::byte> own, std::span<std::byte> all) {
  all_gather(own, std::vector<size_t>(static_cast<size_t>(size()), own.size()), all);
}

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& own) {
  const std::vector<uint64_t> lengths = gather(ranks, uint64_t{own.size()});
  const size_t longest = std::ranges::max(lengths);
  std::string padded = own;
  padded.resize(longest);
  const std::vector<char> all = gather(ranks, std::span<const char>(padded));
  std::vector<std::string> texts;
  for (size_t i = 0; i < lengths.size(); ++i)
    texts.emplace_back(all.data() + i * longest, lengths[i]);
  return texts;
}

double sum_over(Communicator& ranks, double own) {
  double sum = 0;
  for (const double one : gather(ranks, own)) sum += one;
  return sum;
}

}  // namespace rw
