// Ctrl-C as a flag, and its usual effect without one.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <signal.h>
#include <unistd.h>

#include "core/base/interrupt.h"

using namespace rw;

namespace {

// Returns the signal that ends a child which runs `body`, 0 if the child came to its end.
template <class Body>
int ending_signal(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    // As in a program that was just started.
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    body();
    _exit(0);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("interrupts: the first signal is noted, the second ends the process" *
          doctest::test_suite("host")) {
  for (const int number : {SIGINT, SIGTERM}) {
    {
      const InterruptScope scope;
      CHECK(InterruptScope::signal() == 0);
      raise(number);
      CHECK(InterruptScope::signal() == number);
    }
    const InterruptScope fresh;
    CHECK(InterruptScope::signal() == 0);
  }
  for (const int first : {SIGINT, SIGTERM})
    for (const int second : {SIGINT, SIGTERM})
      CHECK(ending_signal([&] {
              const InterruptScope scope;
              raise(first);
              if (InterruptScope::signal() == first) raise(second);
            }) == second);
}

TEST_CASE("interrupts: only within a scope, and not where they are ignored" *
          doctest::test_suite("host")) {
  CHECK(ending_signal([] {
          { const InterruptScope scope; }
          raise(SIGTERM);
        }) == SIGTERM);
  CHECK(ending_signal([] {
          signal(SIGINT, SIG_IGN);
          const InterruptScope scope;
          raise(SIGINT);
          raise(SIGINT);
          if (InterruptScope::signal() != 0) raise(SIGKILL);
        }) == 0);
  const InterruptScope scope;
  CHECK_THROWS_AS(InterruptScope(), ValueError);
  CHECK(Interrupted(SIGTERM, "stopped").signal == SIGTERM);
}
