// The cost of messages.
#pragma once

#include <cstdint>

namespace rw {

// The messages of training on one rank so far. `gradient_seconds - waited_seconds` were hidden
// behind the device's work; seconds in messages include those in which a rank waits for a slower
// one.
struct Traffic {
  uint64_t buckets = 0;         // of gradients that were sent
  uint64_t gradient_bytes = 0;  // of them, to all other ranks
  double gradient_seconds = 0;  // in their messages
  // The seconds that training waited for messages after its device was done with what they hold:
  // until a bucket's memory was free again, and at the end of backward.
  double waited_seconds = 0;
  // The bytes of sharded parameters from all owners to all ranks, and the seconds that training
  // waited for them: for messages, and for the owner's device to reach the copy.
  uint64_t parameter_bytes = 0;
  double parameter_seconds = 0;
  double update_seconds = 0;  // in exchanging sums, or with a Shard parameters, at updates
};

}  // namespace rw
