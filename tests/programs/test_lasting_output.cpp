// Standard output of programs: what others do with the stream that stands in for it.
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
  // Where a stream that is gone would have been.
  for (size_t size = 16; size <= 1024; size += 16) std::memset(std::malloc(size), 0xff, size);
  const bool holds = std::fputs("a line\n", noted) >= 0 && std::fflush(noted) == 0;
  std::_Exit(holds ? 0 : 1);
}

// As the driver of a GPU does, which is loaded while that stream is there.
TEST_CASE("lasting output: who has noted the stream may use it after its end" *
          doctest::test_suite("host")) {
  CHECK(status_of_case("lasting output: a stream that was noted") == 0);
}

}  // namespace rw::test
