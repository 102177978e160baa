#include "core/base/last_words.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>
#include <unistd.h>

namespace rw {

namespace {

constexpr const char* no_more_memory =
    "this process may not have more memory of the host (see `ulimit -v`)";

[[noreturn]] void end_program() {
  // Without an exception this is a fault in the program, of which a debugger should see more.
  const std::exception_ptr error = std::current_exception();
  if (!error) std::abort();
  std::string line = "error: an exception of an unknown type\n";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    line = "error: " + last_words(known) + "\n";
  } catch (...) {
  }
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  std::_Exit(1);
}

}  // namespace

std::string last_words(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return no_more_memory;
  const auto* of_system = dynamic_cast<const std::system_error*>(&error);
  if (of_system && of_system->code() == std::errc::resource_unavailable_try_again)
    return "this process may not have more threads, or more memory of the host for them (see "
           "`ulimit -v` and `ulimit -u`)";
  return error.what();
}

void end_with_last_words() {
  std::set_terminate(end_program);
}

}  // namespace rw
