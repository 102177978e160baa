#define DOCTEST_CONFIG_IMPLEMENT  // the next one says it, unless the header was there before:
                                  // tests/pch
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdlib>

// What somebody tuned on this machine is not what tests are about.
const int untuned = setenv("REWIND_NO_TUNING", "1", 0);
// Nor do devices that live for a few calls need threads of their own.
const int unhurried = setenv("REWIND_NO_BACKGROUND_PIPELINES", "1", 0);
