// What messages cost.
#pragma once

#include <cstdint>

namespace rw {

// Messages of training on one rank, as they were so far. What was hidden behind the device's work
// is `gradient_seconds - waited_seconds`; seconds in messages are also those in which a rank waits
// for another that is slower.
struct Traffic {
  uint64_t buckets = 0;         // of gradients that were sent
  uint64_t gradient_bytes = 0;  // of them, to all other ranks
  double gradient_seconds = 0;  // in their messages
  // That training waited for them: when a bucket's memory was still in use, and at the end of
  // backward, when its device was done. And for parameters in parts that it was about to read.
  double waited_seconds = 0;
  uint64_t parameter_bytes = 0;  // of parameters in parts, of all owners to all ranks
  double update_seconds = 0;     // in exchanging sums, or with a Shard parameters, at updates
};

}  // namespace rw
