// What an exception says.
#pragma once

#include <string>

#include "../core/base/error.h"

namespace rw::test {

// The message of the E that `body` throws, or `otherwise`.
template <class E, class F>
std::string message_of(F&& body, const char* otherwise = "nothing was thrown") {
  try {
    body();
  } catch (const E& e) {
    return e.what();
  }
  return otherwise;
}

// What is wrong with a file.
template <class F>
std::string fault_of(F&& body) {
  return message_of<FileError>(body, "no FileError");
}

}  // namespace rw::test
