// Ctrl-C, SIGTERM and the loss of the terminal as a request that a loop answers between two steps.
#pragma once

#include "error.h"

namespace rw {

// While one lives, the first SIGINT, SIGTERM or SIGHUP only sets a flag; the second ends the
// process at once, as it would without this. A signal that the process ignores stays ignored, as
// SIGHUP under nohup. There may be one at a time: ValueError for a second one.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Returns the signal that came, or 0.
  static int signal();
};

// Thrown by a loop that stopped for a signal. Programs end with 128 + signal, as shells do.
struct Interrupted : Error {
  Interrupted(int number, const std::string& message) : Error(message), signal(number) {}

  int signal;
};

}  // namespace rw
