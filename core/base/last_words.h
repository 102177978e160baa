// The last line of a program that an exception ends.
#pragma once

#include <exception>
#include <string>

namespace rw {

// Returns what a user must know of an exception, as a line without its end. Exceptions of the
// language say little where the system refuses memory or threads.
std::string last_words(const std::exception& error);

// Makes an exception that nobody catches, on any thread, end the program with a line `error: ...`
// and status 1 instead of an abort. Only programs may call it, not libraries that others use.
void end_with_last_words();

}  // namespace rw
