// Gradients of ranks, added up in one order.
#pragma once

#include <functional>
#include <vector>

#include "rewind/dist/communicator.h"
#include "rewind/optim/gradient_exchange.h"

namespace rw {

// The parameters lie on one line, slab after slab; each rank owns a part of it, one as long as the
// other, or with a Shard the parameters whose states it keeps. For a micro-batch every owner gets
// the gradients of its part from all ranks and adds them, in rank order and on its device, by the
// kernel with which backward adds: the bits are those of one process. When the window is full all
// get the sums from the owners. Messages go by pieces of at most `staging_bytes` together, so that
// this is what they take of the device, and twice of the host; the sums take 4 bytes per parameter,
// divided by the number of ranks.
class GradientSums : public GradientExchange {
 public:
  // `ranks` must outlive it.
  GradientSums(Communicator& ranks, const FlatParameters& parameters,
               int64_t staging_bytes = int64_t{16} << 20);

  std::vector<float> all(float own) override { return gather(ranks_, own); }
  void begin() override;
  void add(const FlatParameters& parameters, const std::vector<bool>& counts) override;
  void finish(const FlatParameters& parameters) override;
  void share_stats(const Tensor& stats) override;
  void share_parameters(const FlatParameters& parameters) override;

 protected:
  Communicator& ranks() const { return ranks_; }

 private:
  // Elements of a gradient, and where they lie among the pieces of a round.
  struct Part {
    size_t slot = 0;
    int64_t source = 0, target = 0, size = 0;
  };
  void each_part(int64_t round, const std::function<void(const Part&)>& use) const;
  int64_t rounds() const { return (longest_ + piece_ - 1) / piece_; }
  void place_bounds(const FlatParameters& parameters);
  void keep_own(const FlatParameters& parameters);
  size_t owner_of(int64_t element) const;
  Tensor staging(const FlatParameters& parameters) const;
  void take_reached(const FlatParameters& parameters);

  Communicator& ranks_;
  struct Place {
    int64_t begin = 0, size = 0;
  };
  std::vector<Place> places_;        // of the slots, on the line
  std::vector<int64_t> bounds_;      // of the ranks' parts, and the end
  int64_t longest_ = 0, piece_ = 0;  // elements of a rank's part, and of those a message has
  std::vector<uint8_t> reached_;     // by slot: a gradient came in this window, on any rank
  Tensor sums_;                      // of the own part; undefined: none have come
  std::vector<float> here_, there_;  // staging on the host
};

}  // namespace rw
