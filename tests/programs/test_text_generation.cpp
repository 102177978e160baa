// Texts as they come from a language model: where they stop, and what is held back.
#include <doctest/doctest.h>

#include "core/base/error.h"
#include "trainer/language/text_generation.h"

using namespace rw;

namespace {

// The text that has passed after each piece, and what the end adds.
std::vector<std::string> passed(std::vector<std::string> strings,
                                const std::vector<std::string>& pieces) {
  StopStrings stop(std::move(strings));
  std::vector<std::string> result;
  for (const std::string& piece : pieces) result.push_back(stop.push(piece));
  result.push_back(stop.finish());
  return result;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("stop strings: without one, a text passes as it comes") {
  CHECK(passed({}, {"a", "", "bc"}) == Texts{"a", "", "bc", ""});
}

TEST_CASE("stop strings: a beginning is held back until it is none") {
  CHECK(passed({"END"}, {"xE", "N", "x", "E"}) == Texts{"x", "", "ENx", "", "E"});
  CHECK(passed({"aab"}, {"aa", "a", "c"}) == Texts{"", "a", "aac", ""});
  CHECK(passed({"b", "aab"}, {"a", "aa"}) == Texts{"", "a", "aa"});
}

TEST_CASE("stop strings: nothing passes from the first one on") {
  CHECK(passed({"END"}, {"xE", "ND y", "z"}) == Texts{"x", "", "", ""});
  CHECK(passed({"cd", "bc"}, {"abcd"}) == Texts{"a", ""});
  CHECK(passed({"aab"}, {"a", "aab!"}) == Texts{"", "a", ""});
  StopStrings stop({"x"});
  CHECK(!stop.found());
  stop.push("yx");
  CHECK(stop.found());
  CHECK_THROWS_AS(StopStrings({"a", ""}), ValueError);
}

TEST_SUITE_END();
