// A sign of life while a program prints nothing.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace rw {

// A line on the terminal, "planning ... 3 s", which appears after a second and disappears with the
// object. If standard error is no terminal, nothing appears. Nobody else may print meanwhile.
class Waiting {
 public:
  explicit Waiting(std::string what);
  explicit Waiting(std::function<std::string()> what);  // returns what to say now, in a thread
  Waiting(const Waiting&) = delete;                     // it owns a line of the terminal
  Waiting& operator=(const Waiting&) = delete;          // as above

 private:
  std::jthread thread_;  // draws the line; not running without a terminal
};

// Returns the columns of the terminal behind a descriptor, or 0 if there is none on which a line
// can be redrawn.
int terminal_columns(int file);

}  // namespace rw
