// Switches of the environment: lists of words and of limits, and invalid ones.
#include <doctest/doctest.h>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/message_of.h"

using namespace rw;
using test::Env;
using test::message_of;
using test::with;
using test::Without;

TEST_SUITE_BEGIN("host");

TEST_CASE("environment: what REWIND_WITHOUT names is not used") {
  const Env words("REWIND_WITHOUT", "texels,,fusion,");
  CHECK(is_without("texels"));
  CHECK(is_without("fusion"));
  CHECK(!is_without("halves"));
  {
    const Without more("halves");
    CHECK(is_without("halves"));
    CHECK(is_without("texels"));
    const Without less = with("texels");
    CHECK(!is_without("texels"));
    CHECK(is_without("fusion"));
  }
  CHECK(!is_without("halves"));
  const Env wrong("REWIND_WITHOUT", "fusion,texel");
  CHECK(message_of<ValueError>([] { is_without("fusion"); }).find("got 'texel'") !=
        std::string::npos);
}

TEST_CASE("environment: REWIND_LIMITS") {
  const Env limits("REWIND_LIMITS", "range:65536,dispatch-us:100");
  CHECK(env_limit("range") == 65536);
  CHECK(env_limit("dispatch-us") == 100);
  CHECK(!env_limit("block"));
  for (const char* wrong : {"range", "range:", "range:0", "range:-1", "range:1k", "ranges:1"}) {
    const Env env("REWIND_LIMITS", wrong);
    CAPTURE(wrong);
    CHECK_THROWS_AS(env_limit("range"), ValueError);
  }
}

TEST_SUITE_END();
