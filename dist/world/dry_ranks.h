// Ranks that do not exist.
#pragma once

#include "communicator.h"

namespace rw {

// One of several ranks, for dry runs. All ranks seem to give what this one gives; values of more
// than 64 KiB, which a dry device does not have, stay as they were. So a dry run predicts what each
// rank will need.
class DryRanks : public Communicator {
 public:
  // ValueError unless `rank` is one of them.
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
