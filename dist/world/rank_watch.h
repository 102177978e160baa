// Whether the ranks of this machine live.
#pragma once

#include <functional>
#include <memory>

#include "communicator.h"

namespace rw {

// MPI ends all ranks when one is killed, and tells nobody which. While this lives, the ranks of a
// machine have a socket to the first of them, which the system closes with whoever ends, however
// that happens.
class RankWatch {
 public:
  // All ranks together. `died` is called once, on another thread, with the first rank of this
  // machine that ended without the destructor of its RankWatch: by the machine's first rank, or of
  // that one by its second. Where sockets are not to be had nothing is watched.
  RankWatch(Communicator& ranks, std::function<void(int rank)> died);
  ~RankWatch();  // this rank ends as it should
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  class Watcher;
  std::unique_ptr<Watcher> watcher_;  // null: there are no others here
};

}  // namespace rw
