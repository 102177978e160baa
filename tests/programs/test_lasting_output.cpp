// Standard output of programs, and libraries that use the stream which replaces it.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fixtures/child_case.h"
#include "trainer/program/lasting_output.h"

namespace rw::test {

TEST_CASE("lasting output: a stream that was noted" * doctest::skip()) {
  LastingOutput lasting;
  std::FILE* const noted = stdout;
  lasting.finish();
  // Overwrites memory in which a freed stream would have been.
  for (size_t size = 16; size <= 1024; size += 16) std::memset(std::malloc(size), 0xff, size);
  const bool holds = std::fputs("a line\n", noted) >= 0 && std::fflush(noted) == 0;
  std::_Exit(holds ? 0 : 1);
}

// The driver of a GPU that is loaded while that stream exists does so.
TEST_CASE("lasting output: who has noted the stream may use it after its end" *
          doctest::test_suite("host")) {
  CHECK(status_of_case("lasting output: a stream that was noted") == 0);
}

}  // namespace rw::test
