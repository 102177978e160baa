// A sign of life while a program prints nothing.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace rw {

// Shows a line on the terminal, "planning ... 3 s", which appears after a second and disappears
// with the thread that draws it. If standard error is no terminal, nothing appears. Nobody else may
// print meanwhile.
[[nodiscard]] std::jthread show_waiting(std::string what);
// The same with what `what` returns, which that thread calls.
[[nodiscard]] std::jthread show_waiting(std::function<std::string()> what);

// Returns the columns of the terminal behind a descriptor, or 0 if there is none on which a line
// can be redrawn.
int terminal_columns(int file);

}  // namespace rw
