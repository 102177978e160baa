// What a program does while it says nothing.
#pragma once

#include <string>
#include <thread>

namespace rw {

// A line on the terminal, "planning ... 3 s", which comes after a second and goes with the object.
// Where standard error is no terminal, nothing. Nobody else prints meanwhile.
class Waiting {
 public:
  explicit Waiting(std::string what);
  Waiting(const Waiting&) = delete;             // it owns a line of the terminal
  Waiting& operator=(const Waiting&) = delete;  // as above

 private:
  std::jthread thread_;  // draws; none where there is no terminal
};

// The columns of the terminal that a descriptor is; 0: it is none on which a line can be redrawn.
int terminal_columns(int file);

}  // namespace rw
