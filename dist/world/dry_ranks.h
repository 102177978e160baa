// Ranks that are not there.
#pragma once

#include "communicator.h"

namespace rw {

// One rank of so many for dry runs: what all give is what this one gives, or for more than 64 KiB,
// which are values that a dry device has not, what was there before. So a dry run predicts what
// each rank will need.
class DryRanks : public Communicator {
 public:
  // ValueError where it is none of them.
  DryRanks(int rank, int size);
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string str() const override { return "a dry run"; }
  void all_to_all(std::span<const std::byte> to, std::span<const size_t> sizes,
                  std::span<std::byte> from) override;
  void all_gather(std::span<const std::byte> own, std::span<const size_t> sizes,
                  std::span<std::byte> all) override;
  void broadcast(std::span<std::byte>, int) override {}
  [[noreturn]] void abort(int status) override;

 private:
  const int rank_, size_;
};

}  // namespace rw
