// Watches whether the ranks of this machine live.
#pragma once

#include <functional>
#include <memory>

#include "communicator.h"

namespace rw {

// MPI ends all ranks when one is killed, and does not say which one. While this lives, the ranks of
// a machine hold a socket to the first of them, which the system closes when a rank ends, however
// that happens.
class RankWatch {
 public:
  // All ranks make it together. `died` is called once, on another thread, with the first rank of
  // this machine that ended without the destructor of its RankWatch: by the machine's first rank,
  // or, if that one ended, by its second. If there are no sockets, nothing is watched.
  RankWatch(Communicator& ranks, std::function<void(int rank)> died);
  ~RankWatch();  // this rank ends as it should
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

 private:
  class Watcher;
  std::unique_ptr<Watcher> watcher_;  // null: there are no others here
};

}  // namespace rw
